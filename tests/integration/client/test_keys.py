"""API keys from both ends: made and taken back by the command, sent by the client, asked for by a gateway that runs."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firmq.shared.cli.files import change_file
from firmq.shared.cli.main import main
from firmq.shared.client import Client, NotAllowed, new_task
from firmq.shared.stores.api_keys import Scope, new_key
from tests.integration.client.conftest import Running, start_gateway
from tests.support.harness import free_port, wait_until


class Guarded:
    """A gateway that asks for keys, and the file that it reads them from."""

    def __init__(self, url: str, path: Path, admin: str) -> None:
        self.url = url
        self.path = path
        self.admin = admin


@pytest.fixture(scope="module")
def guarded(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    path = tmp_path_factory.mktemp("keys") / "api-keys"
    key, text = new_key("ann", [Scope.ADMIN])
    path.write_text(f"# the team\n{key.line}\n")
    port = free_port()
    start_gateway(running.system, port, API_KEYS_FILE=str(path))
    return Guarded(f"http://127.0.0.1:{port}", path, text)


@pytest.fixture
def shop(guarded: Guarded, client_class: type[Client]) -> Iterator[Client]:
    """A client that may submit and read, once the gateway knows its key."""
    key, text = new_key("shop", [Scope.SUBMIT, Scope.READ])
    with guarded.path.open("a") as file:
        file.write(f"{key.line}\n")
    with client_class(guarded.url, api_key=text) as client:
        wait_until(lambda: _let_in(client), "the gateway knows the key")
        yield client


def _let_in(client: Client) -> bool:
    try:
        next(client.tasks(), None)
    except NotAllowed:
        return False
    return True


def command(*arguments: str) -> int:
    return main(list(arguments))


def test_the_client_sends_its_key_with_everything_that_it_asks(shop: Client) -> None:
    task = shop.submit("echo", 7)
    assert shop.result(task.task_id, timeout=60) == 7
    assert [each.task_id for each in shop.watch(task.task_id)][-1] == task.task_id
    feed = shop.batch(new_task("echo", n) for n in range(3)).drain()
    assert feed.accepted == 3
    assert feed.batch_id
    assert list(shop.batches.watch(feed.batch_id))[-1].total == 3


def test_what_a_key_is_not_for_is_refused_at_once_and_said(shop: Client, guarded: Guarded) -> None:
    with pytest.raises(NotAllowed, match="needs the scope operate, but the key of shop has submit, read"):
        shop.queues.pause("low", "a test")
    with Client(guarded.url) as nobody:
        for refused in (lambda: nobody.submit("echo", 1), lambda: nobody.batch([new_task("echo", 1)]).drain()):
            with pytest.raises(NotAllowed, match="Authorization: Bearer KEY") as raised:
                refused()
            assert raised.value.status == 401


def test_a_key_is_made_used_listed_and_taken_back(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(guarded.path)
    assert command("keys", "create", "mailer", "submit", "--rate", "50/s", "--expires", "90d", "--file", file) == 0
    made = capsys.readouterr()
    key = made.out.strip()
    key_id = key.split("_")[1]
    assert "shown only once" in made.err
    assert key not in guarded.path.read_text()
    assert guarded.path.read_text().startswith("# the team\n")

    monkeypatch.setenv("FIRMQ_API_KEY", key)
    with Client(guarded.url) as client:
        wait_until(lambda: _may_submit(client), "the gateway knows the new key")

    monkeypatch.setenv("FIRMQ_API_KEY", guarded.admin)
    assert command("--url", guarded.url, "--json", "keys", "list") == 0
    listed = {line["id"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (listed[key_id]["client"], listed[key_id]["rate"], listed[key_id]["scopes"]) == (
        "mailer",
        "50/s",
        ["submit"],
    )
    assert listed[key_id]["expires_at"]
    assert listed[key_id]["last_used_at"]
    assert command("--url", guarded.url, "keys", "list") == 0
    assert "mailer" in capsys.readouterr().out

    assert command("keys", "revoke", key_id, "--file", file) == 0
    assert guarded.path.read_text().startswith("# the team\n")
    monkeypatch.setenv("FIRMQ_API_KEY", key)
    with Client(guarded.url) as client:
        wait_until(lambda: not _may_submit(client), "the gateway knows that the key is gone")
    assert command("--url", guarded.url, "submit", "echo", "1") == 3
    assert "Key unknown" in capsys.readouterr().err
    assert command("keys", "revoke", key_id, "--file", file) == 2


def _may_submit(client: Client) -> bool:
    try:
        client.submit("echo", 1)
    except NotAllowed:
        return False
    return True


def test_without_a_file_the_line_is_for_a_secret_and_the_key_for_eyes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("keys", "create", "shop", "submit", "read") == 0
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    assert ":shop:submit+read:" in line
    assert "fq_" in said.err
    assert "fq_" not in said.out


def test_a_new_file_is_for_its_owner_alone_and_a_wrong_one_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "api-keys"
    for _ in range(2):
        assert command("keys", "create", "shop", "submit", "--file", str(path)) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().splitlines()) == 2
    path.write_text("something else\n")
    assert command("keys", "create", "shop", "submit", "--file", str(path)) == 2
    assert "is not a key" in capsys.readouterr().err
    assert path.read_text() == "something else\n"
    assert list(tmp_path.iterdir()) == [path]


def test_changes_at_the_same_time_lose_none_and_bring_back_nothing(tmp_path: Path) -> None:
    path = tmp_path / "api-keys"
    path.write_text("old\n")

    def change(number: int) -> None:
        def slowly(text: str) -> str:
            time.sleep(0.02)  # others have read meanwhile, unless they wait
            return text.replace("old\n", "") if number == 0 else f"{text}{number}\n"

        change_file(path, slowly)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    assert sorted(path.read_text().split()) == list("1234567")
    assert list(tmp_path.iterdir()) == [path]


def test_keys_made_at_the_same_time_are_all_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "api-keys"

    def create(number: int) -> int:
        return command("keys", "create", f"shop{number}", "submit", "--file", str(path))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(16))) == [0] * 16
    assert len(path.read_text().splitlines()) == 16


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner_or_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "api-keys"
    assert command("keys", "create", "shop", "submit", "--file", str(path)) == 0
    key_id = path.read_text().partition(":")[0]
    os.chown(path, 65534, 65534)
    path.chmod(0o640)
    assert command("keys", "create", "other", "submit", "--file", str(path)) == 0
    kept = path.stat()
    assert (kept.st_uid, kept.st_gid, stat.S_IMODE(kept.st_mode)) == (65534, 65534, 0o640)

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", forbidden)
    before = path.read_text()
    assert command("keys", "revoke", key_id, "--file", str(path)) == 2
    assert "could not keep its owner" in capsys.readouterr().err
    assert (path.read_text(), path.stat().st_uid, list(tmp_path.iterdir())) == (before, 65534, [path])
    monkeypatch.undo()
    assert command("keys", "revoke", key_id, "--file", str(path)) == 0
    assert path.stat().st_uid == 65534


@pytest.mark.parametrize("when", ["0h", "99999999y", "9" * 400 + "y", "2020-01-01", "20200101T120000Z"], ids=repr)
def test_a_key_that_would_open_nothing_or_has_no_end_that_there_is_is_not_made(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "api-keys"
    assert command("keys", "create", "shop", "submit", "--expires", when, "--file", str(path)) == 2
    assert "expires must be" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("option", [["--rate", "often"], ["--expires", "soon"]])
def test_what_is_no_rate_or_no_time_is_said(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("keys", "create", "shop", "submit", *option) == 2
    assert "must" in capsys.readouterr().err
