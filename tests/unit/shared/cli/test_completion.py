"""Which words complete a command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from taskqueue.shared.cli.completion import complete
from taskqueue.shared.cli.main import main, parser


def words(*before: str) -> list[str]:
    return [word for word, _ in complete(parser(), before)]


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (["wor"], ["workers", "worker"]),
        (["--json", "sub"], ["submit"]),
        (["--timeout", "3", "sub"], ["submit"]),
        (["queues", ""], ["list", "pause", "resume", "empty", "move-foreign"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["list", "--status", "comp"], ["completed"]),
        (["submit", "process", "--on-conflict", ""], ["refuse", "existing", "replace"]),
        (["submit", "process", "1", "--wat"], ["--watch"]),
        (["keys", "create", "shop", ""], ["submit", "read", "operate", "admin"]),
        (["dev", "--no"], ["--no-reload"]),
        (["dev", "shop.tasks", "--po"], ["--port"]),
        (["run", "greet", "--pd"], ["--pdb"]),
        (["keys", "create", "shop", "submit", "re"], ["read"]),
        (["no-such-command", ""], []),
        (["show", ""], []),
        (["--no-such-option", "work"], ["workers", "worker"]),
    ],
)
def test_what_may_follow(before: list[str], found: list[str]) -> None:
    assert words(*before) == found


def test_every_command_is_listed_with_its_meaning() -> None:
    found = dict(complete(parser(), [""]))
    assert {"submit", "queues", "dev", "run", "worker", "completion"} <= found.keys()
    assert all(found.values())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("taskqueue wor", ["workers", "worker"]),
        (".venv/bin/taskqueue list --status comp", ["completed"]),
        ("taskqueue completion ", ["bash", "zsh", "fish"]),
        ("taskqueue submit process 'to be", []),
        ("taskqueue", []),
    ],
)
def test_the_line_of_bash_is_read(line: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert [word for word in words() if word in found or line != "taskqueue"] == found


class Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = {"/types": ["greet", "process"], "/queues": ["high", "low"], "/schedules": ["nightly"]}[self.path]
        body = json.dumps({"items": [{"name": name} for name in names]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class chose the name
        pass


@pytest.fixture
def gateway() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (["submit", ""], ["greet", "process"]),
        (["run", "gr"], ["greet"]),
        (["list", "--type", "pr"], ["process"]),
        (["submit", "greet", "--priority", ""], ["high", "low"]),
        (["queues", "pause", "l"], ["low"]),
        (["schedules", "run", ""], ["nightly"]),
    ],
)
def test_names_come_from_the_gateway(gateway: str, before: list[str], found: list[str]) -> None:
    assert words("--url", gateway, *before) == found


def test_without_a_gateway_there_are_no_names() -> None:
    assert words("--url", "http://127.0.0.1:1", "submit", "") == []
    assert words("--url", "not an address", "submit", "") == []


def test_a_shell_is_answered_with_a_word_and_its_meaning_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "queues", "p"]) == 0
    assert capsys.readouterr().out == "pause\tpause a queue: workers claim nothing more from it\n"
