"""Which words complete a command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from firmq.shared.cli.arguments import ASKED


def words(line: str, said: Path) -> list[str]:
    """What the scripts of argcomplete are given for a command line."""
    asked = {ASKED: "1", "COMP_LINE": f"firmq {line}", "COMP_POINT": str(len(line) + len("firmq "))}
    subprocess.run(
        [sys.executable, "-m", "firmq"],
        env={**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(said)},
        check=True,
    )
    return [each.strip() for each in said.read_text().split("\013") if each]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("wor", ["workers", "worker"]),
        ("--json sub", ["submit"]),
        ("--timeout 3 sub", ["submit"]),
        ("queues ", ["list", "pause", "resume", "empty", "move-foreign"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("list --status comp", ["completed"]),
        ("submit process --on-conflict ", ["refuse", "existing", "replace"]),
        ("submit process 1 --wat", ["--watch"]),
        ("keys create shop ", ["submit", "read", "operate", "admin"]),
        ("dev --no", ["--no-reload"]),
        ("dev shop.tasks --po", ["--port"]),
        ("run greet --pd", ["--pdb"]),
        ("keys create shop submit re", ["read"]),
        ("--no-such-option work", ["workers", "worker"]),
        ("submit process 'to be", []),
    ],
)
def test_what_may_follow(line: str, found: list[str], tmp_path: Path) -> None:
    assert words(line, tmp_path / "said") == found


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
    ("line", "found"),
    [
        ("submit ", ["greet", "process"]),
        ("run gr", ["greet"]),
        ("list --type pr", ["process"]),
        ("submit greet --priority ", ["high", "low"]),
        ("queues pause l", ["low"]),
        ("schedules run ", ["nightly"]),
    ],
)
def test_names_come_from_the_gateway(gateway: str, line: str, found: list[str], tmp_path: Path) -> None:
    assert words(f"--url {gateway} {line}", tmp_path / "said") == found


def test_without_a_gateway_there_are_no_names(tmp_path: Path) -> None:
    assert words("--url http://127.0.0.1:1 submit ", tmp_path / "said") == []
    assert words("--url 'not an address' submit ", tmp_path / "said") == []
