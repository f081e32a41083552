"""Redis starts as the manifest says: its very command and configuration, on a server of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from firmq.shared.local.embedded_redis import choose_server
from tests.deployment.manifests import config_map, workloads
from tests.support.harness import free_port, wait_until

MANIFEST = workloads()["redis"].container


def command(folder: Path, port: int) -> list[str]:
    """The container's command, with the places of this machine in it."""
    (folder / "data").mkdir()
    (folder / "bin").mkdir()
    (folder / "bin" / "redis-server").symlink_to(choose_server().path)
    told = config_map("redis")["redis.conf"].replace("dir /data", f"dir {folder}/data")
    told = told.replace("port 6379", f"port {port}").replace("bind * -::*", "bind 127.0.0.1")
    (folder / "redis.conf").write_text(told)
    return [*MANIFEST["command"], *(part.replace("/etc/redis", str(folder)) for part in MANIFEST["args"])]


def start(folder: Path, port: int, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, port),
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis that runs as in the cluster."""
    port = free_port()
    process = start(tmp_path, port, REDISCLI_AUTH="0123abcdef")
    try:
        wait_until(lambda: answers(port) or process.poll() is not None, "Redis answers")
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield port
    finally:
        process.terminate()
        process.wait(40)


def answers(port: int) -> bool:
    try:
        return bool(Redis(port=port, password="0123abcdef").ping())
    except RedisError:
        return False


def test_it_keeps_a_file_evicts_nothing_and_asks_for_the_password(server: int, tmp_path: Path) -> None:
    with Redis(port=server, password="0123abcdef", decode_responses=True) as redis:
        told = {**redis.config_get("appendonly"), **redis.config_get("maxmemory*"), **redis.config_get("stream-node*")}
        assert told["appendonly"] == "yes"
        assert told["maxmemory-policy"] == "noeviction"
        assert int(told["maxmemory"]) > 1 << 30
        assert told["stream-node-max-bytes"] == "256"
        redis.set("kept", "1")
    assert (tmp_path / "data" / "appendonlydir").is_dir()
    with pytest.raises(AuthenticationError):
        Redis(port=server).ping()
    arguments = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "0123abcdef" not in arguments


def test_without_a_password_it_says_so_and_does_not_start(tmp_path: Path) -> None:
    process = start(tmp_path, free_port())
    assert process.wait(40) != 0
    assert process.stderr is not None
    assert "the secret task-queue has no redis-password" in process.stderr.read()
