"""A backup brings the data back: the recipes of README.md, on every server that can be had, and of the Makefile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from firmq.shared.local.embedded_redis import ServerBinary
from tests.deployment import compose_file
from tests.deployment.manifests import config_map, workloads
from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT, free_port, wait_until
from tests.support.redis_servers import redis_cli, servers

PASSWORD = "0123abcdef"
README = DOCUMENTS
SEVERAL_FILES = [server for server in servers() if server.version >= (7, 0, 0)]
"""Those that keep the append-only file as a folder, as the servers do that we name."""
EACH = pytest.mark.parametrize("server", SEVERAL_FILES, ids=str)
NEWEST = pytest.mark.parametrize("server", SEVERAL_FILES[-1:], ids=str)
pytestmark = pytest.mark.skipif(redis_cli() is None, reason="there is no redis-cli")


COMPOSE = """
case "$1" in exec | run) ;; *) exit 0 ;; esac
for last; do :; done
exec sh -ec "$(printf '%s' "$last" | sed 's,[/]data,/data,g')"
"""
"""docker compose for one container, which the test stops and starts."""


class Container:
    """The container of Redis: its command and its volume, in a folder of this machine."""

    def __init__(self, folder: Path, server: ServerBinary, command: Sequence[str]) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.port = free_port()
        self.environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "REDISCLI_AUTH": PASSWORD, "MAXMEMORY": "100mb"}
        self.command = [self.here(part) for part in command]
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "bin").mkdir()
        for name in ("redis-server", "redis-check-rdb"):
            (folder / "bin" / name).symlink_to(server.path)
        self.program("redis-cli", f'exec {redis_cli()} -p {self.port} "$@"')

    def here(self, text: str) -> str:
        return text.replace("/data", str(self.data))

    def program(self, name: str, text: str) -> Path:
        path = self.data.parent / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=subprocess.DEVNULL)
        wait_until(self._answers, "Redis answers")

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            assert self.process.wait(30) == 0

    def _answers(self) -> bool:
        assert self.process
        assert self.process.poll() is None, "Redis does not start"
        try:
            return bool(self.client().ping())
        except RedisError:
            return False

    def client(self) -> Redis:
        return Redis(port=self.port, password=PASSWORD, decode_responses=True, protocol=2)

    def keys(self) -> set[str]:
        with self.client() as redis:
            return set(redis.keys())

    def set(self, key: str) -> None:
        with self.client() as redis:
            redis.set(key, "1")

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(arguments, env=self.environment, input=given, capture_output=True, check=False)


@pytest.fixture
def pod(tmp_path: Path, server: ServerBinary) -> Iterator[Container]:
    """As in Kubernetes."""
    manifest = workloads()["redis"].container
    told = [*manifest["command"], *(part.replace("/etc/redis", str(tmp_path)) for part in manifest["args"])]
    container = Container(tmp_path, server, told)
    conf = container.here(config_map("redis")["redis.conf"]).replace("bind * -::*", "bind 127.0.0.1")
    (tmp_path / "redis.conf").write_text(conf.replace("port 6379", f"port {container.port}"))
    yield from _running(container)


@pytest.fixture
def composed(tmp_path: Path, server: ServerBinary) -> Iterator[Container]:
    """As with Docker Compose."""
    told = compose_file.services()["redis"]
    command = [*told["entrypoint"], *(part.replace("$$", "$") for part in told["command"])]
    container = Container(tmp_path, server, command)
    container.command[-1] = container.command[-1].replace("--dir", f"--bind 127.0.0.1 --port {container.port} --dir")
    yield from _running(container)


def _running(container: Container) -> Iterator[Container]:
    container.start()
    try:
        yield container
    finally:
        assert container.process
        container.process.kill()
        container.process.wait()


def _in_the_pod(container: Container) -> list[str]:
    """What the README has the pod's shell do: backup and restore."""
    found = re.findall(r"kubectl exec (?:-i )?-n task-queue redis-0 -- sh -ec '([^']+)'", README)
    assert len(found) == 2
    return [container.here(script) for script in found]


@EACH
def test_the_readmes_recipe_for_kubernetes_brings_back_what_was_there(pod: Container) -> None:
    backup, restore = _in_the_pod(pod)
    assert "kubectl delete pod -n task-queue redis-0" in README
    for number in range(2):
        pod.set(f"before {number}")
        saved = pod.run("sh", "-ec", backup)
        assert saved.returncode == 0, saved.stderr
        there = pod.keys()
        pod.set(f"after {number}")
        done = pod.run("sh", "-ec", restore, given=saved.stdout)
        assert done.returncode == 0, done.stderr
        for _ in range(2):  # the new pod, and one after it
            pod.stop()
            pod.start()
            assert pod.keys() == there
        assert (pod.data / "before-restore").is_dir()


@NEWEST
def test_a_restore_in_the_cluster_that_fails_leaves_redis_writing_its_file(pod: Container) -> None:
    backup, restore = _in_the_pod(pod)
    saved = pod.run("sh", "-ec", backup).stdout
    pod.set("before")
    assert pod.run("sh", "-ec", restore, given=saved[:-20]).returncode != 0
    half_way = restore.replace("mv restore appendonlydir", "false")
    assert half_way != restore
    with pod.client() as redis:
        # A snapshot is being taken, for seconds, so the rewrite of the file has to wait for it.
        wait_until(lambda: not redis.info("persistence")["rdb_bgsave_in_progress"], "nobody takes one")
        redis.config_set("rdb-key-save-delay", 1_500_000)
        redis.bgsave()
        assert pod.run("sh", "-ec", half_way, given=saved).returncode != 0
        assert redis.config_get("appendonly") == {"appendonly": "yes"}
        redis.set("later", "1")
    pod.stop()
    pod.start()
    assert pod.keys() == {"before", "later"}


@NEWEST
def test_make_restore_brings_back_what_make_backup_saved(composed: Container) -> None:
    backup = composed.data.parent / "tasks.tar"
    compose = composed.program("compose", composed.here(COMPOSE))
    for number in range(2):
        composed.set(f"before {number}")
        done = composed.run("make", "-sf", f"{ROOT}/Makefile", "backup", f"TO={backup}", f"COMPOSE={compose}")
        assert done.returncode == 0, done.stderr
        there = composed.keys()
        composed.set(f"after {number}")
        composed.stop()
        done = composed.run("make", "-sf", f"{ROOT}/Makefile", "restore", f"FROM={backup}", f"COMPOSE={compose}")
        assert done.returncode == 0, done.stderr
        for _ in range(2):
            composed.start()
            assert composed.keys() == there
            composed.stop()
        composed.start()
