"""The place where the laboratory works: a Redis with its file, and every part of the product in its own process."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import psutil
from redis import Redis
from redis.exceptions import RedisError

from firmq.shared.child_processes import describe_exit, dies_with_us
from firmq.shared.http.gunicorn import memory_folder
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.labs.faults import kinds
from tests.labs.faults.addresses import HOST, new_port
from tests.labs.faults.clients import call
from tests.support.harness import QUICK, ROOT, wait_until
from tests.support.relay import SpanForwarder

LEASE = 3.0
"""Seconds. Faults that are to outlast a lease last longer."""
DRAIN = 5.0
KILL_GRACE = 1.5
"""Seconds, as the product has it."""
MOST_WAITING = 1500
"""Tasks that a queue may hold."""
_MODULES = ("handlers", "handlers_waiting", "handlers_untidy")
VERSIONS = tuple(
    ",".join(f"tests.labs.faults.{each}" for each in (*_MODULES, version)) for version in ("handlers_v1", "handlers_v2")
)
"""The modules of the application before and after an update; workers run the one or the other."""
ENVIRONMENT = {
    **QUICK,
    "BIND_HOST": HOST,
    "WORKER_EXECUTORS": "2",
    "EXECUTOR_SLOTS": "16",
    "LEASE_TIME": f"{LEASE:g}",
    "INITIAL_RETRY_DELAY": "0.2",
    "MAX_RETRY_DELAY": "1",
    "MAX_CRASHES": str(kinds.MAX_CRASHES),
    "MAX_QUEUE_LENGTH": str(MOST_WAITING),
    "GATEWAY_PROCESSES": "1",
    "DRAIN_GRACE": f"{DRAIN:g}",
    "KILL_GRACE": f"{KILL_GRACE:g}",
    "DASHBOARD_REFRESH": "1",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "2",
    "HOUSEKEEPER_LEADER_LEASE": "3",
    "HOUSEKEEPER_METRICS_INTERVAL": "0.5",
    "HOUSEKEEPER_TTL_INTERVAL": "0.5",
    "LOG_FORMAT": "text",
}
PARTS = {
    "gateway": ("gateway-1", "gateway-2"),
    "worker": ("worker-1", "worker-2"),
    "housekeeper": ("housekeeper-1", "housekeeper-2", "housekeeper-3"),
    "dashboard": ("dashboard-1",),
}
QUEUE_EXECUTORS = {"worker-2": {"high": 1}}
"""The most executors of a worker that run tasks of a queue at once; the other worker has no such limit."""
SMALL = {"gateway": ("gateway-1",), "worker": ("worker-1", "worker-2"), "housekeeper": ("housekeeper-1",)}
"""Enough to find a planted bug."""
CLOCK = ROOT / "tests" / "labs" / "faults" / "clock"
_PORTS = {
    "gateway": "GATEWAY_PORT",
    "worker": "WORKER_METRICS_PORT",
    "housekeeper": "HOUSEKEEPER_METRICS_PORT",
    "dashboard": "DASHBOARD_PORT",
}


@dataclass(eq=False)
class Part:
    """One process of the product and what belongs to it; it keeps its name, port and relay when it is started again."""

    name: str
    kind: str
    folder: Path
    way: SpanForwarder | None
    """Between it and Redis, where there is one."""
    environment: dict[str, str]
    port: int = field(default_factory=new_port)
    process: subprocess.Popen[bytes] | None = None
    version: int = 0
    """Of the application, whose handlers a worker has."""
    pids: list[int] = field(default_factory=list)
    """Of each process that was started under its name."""
    wanted: bool = False
    """Whether it is to run now: if not, a fault has it."""

    @property
    def relay(self) -> SpanForwarder:
        assert self.way is not None
        return self.way

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def clock(self) -> Path:
        return self.folder / f"{self.name}.clock"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set_clock(self, seconds: float) -> None:
        """Makes the wall clock of its processes, now or when they are started, wrong by so much."""
        set_clock(self.clock, seconds)

    def start(self) -> None:
        self.wanted = True
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firmq", self.kind],
                env={
                    **os.environ,
                    **self.environment,
                    "TASK_MODULES": VERSIONS[self.version],
                    _PORTS[self.kind]: str(self.port),
                    "PYTHONPATH": str(CLOCK),
                    "FAULTS_CLOCK": str(self.clock),
                },
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_us(),
            )
        self.pids.append(self.process.pid)

    def tree(self) -> list[int]:
        """Its processes, itself first."""
        if self.process is None:
            return []
        with contextlib.suppress(psutil.Error):
            return [self.process.pid, *(each.pid for each in psutil.Process(self.process.pid).children(recursive=True))]
        return []

    def children(self) -> list[int]:
        return self.tree()[1:]

    def kill(self) -> None:
        """As kill -9 of its service would: the process that was started, not what it started."""
        self.wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def update(self, version: int) -> None:
        """As a rolling update does: it is told to end, has its grace, and another takes its place."""
        self.wanted = False
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(DRAIN + 4)
            except subprocess.TimeoutExpired:
                self.kill_all()
        self.version = version
        self.start()

    def kill_all(self) -> None:
        """All of its processes at once, as the end of a container."""
        tree = self.tree()
        self.kill()
        for pid in tree[1:]:
            _send(pid, signal.SIGKILL)

    def heal(self) -> None:
        """Its way to Redis is free, and it goes on."""
        if self.way is not None:
            self.way.heal()
        thaw(self.tree())

    def words(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def set_clock(file: Path, seconds: float) -> None:
    """What `clock/sitecustomize.py` reads, written in place, as it is being read."""
    with file.open("r+b" if file.exists() else "wb") as written:
        written.write(struct.pack("d", seconds))


def _serves(address: str) -> bool:
    ready = call(address, "GET", "/health/ready").status == 200
    known = {each["name"] for each in call(address, "GET", "/types").body.get("items", [])}
    return ready and known >= kinds.TYPES


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def freeze(pids: list[int]) -> None:
    for pid in pids:
        _send(pid, signal.SIGSTOP)


def thaw(pids: list[int]) -> None:
    for pid in pids:
        _send(pid, signal.SIGCONT)


def fill_disk(redis: EmbeddedRedis, left: int) -> None:
    """So many bytes more, and the append-only file cannot grow: each write of it fails, as on a full disk."""
    file = max(redis.folder.path.glob("appendonlydir/*.incr.aof"), key=lambda each: each.stat().st_mtime_ns)
    _limit_files(redis, file.stat().st_size + left)


def make_room(redis: EmbeddedRedis) -> None:
    _limit_files(redis, resource.RLIM_INFINITY)


def _limit_files(redis: EmbeddedRedis, size: int) -> None:
    assert redis.pid, "Redis does not run"
    resource.prlimit(redis.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class Site:
    """Two gateways, two workers, three housekeepers, a dashboard and Redis. Start it from the main thread."""

    def __init__(self, folder: Path, kinds_of_parts: Mapping[str, Sequence[str]] = PARTS) -> None:
        self.folder = folder
        self.wanted = kinds_of_parts
        # In memory, which outlives the process as a disk does; how slow the disk is, is up to the faults.
        self.data = Path(tempfile.mkdtemp(prefix="faults-redis-", dir=memory_folder()))
        self.parts: dict[str, Part] = {}
        self.died: list[str] = []
        self.while_waiting: Callable[[], object] = lambda: None
        """Called while `tell` waits, so that a fault that is over ends and does not keep Redis from listening."""
        self._admin: Redis | None = None

    @cached_property
    def redis(self) -> EmbeddedRedis:
        """As it is shipped, `appendfsync` included."""
        return EmbeddedRedis(data_dir=self.data / "data", host=HOST, port=new_port())

    @property
    def admin(self) -> Redis:
        """A client right at Redis, past the relays."""
        if self._admin is None:
            self._admin = Redis.from_url(self.redis.url, socket_timeout=5, socket_connect_timeout=5, protocol=2)
        return self._admin

    def start_store(self) -> None:
        self.redis.start()

    def stop_store(self) -> None:
        if self.redis.pid is not None:
            thaw([self.redis.pid])
        self.redis.stop()

    def way_to_store(self) -> tuple[SpanForwarder | None, dict[str, str]]:
        """For one part: what lies between, and what it has to be told."""
        relay = SpanForwarder(self.redis.url, HOST)
        return relay, {"REDIS_URL": relay.url}

    def of(self, kind: str) -> list[Part]:
        return [self.parts[name] for name in self.wanted.get(kind, ())]

    def queue_executors(self, pid: int) -> Mapping[str, int]:
        """The limits that QUEUE_EXECUTORS sets for the worker that is, or was, this process."""
        return next((limits for name, limits in QUEUE_EXECUTORS.items() if pid in self.parts[name].pids), {})

    @property
    def gateways(self) -> dict[str, str]:
        return {part.name: part.address for part in self.of("gateway")}

    # --- life ---

    def open(self) -> None:
        """Everything up and ready."""
        self.start_store()
        for kind, names in self.wanted.items():
            for name in names:
                way, told = self.way_to_store()
                environment = {**ENVIRONMENT, "FAULTS_LEDGER": str(self.folder), **told}
                environment |= {"HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID": name}
                limits = (f"{queue}:{most}" for queue, most in QUEUE_EXECUTORS.get(name, {}).items())
                environment["QUEUE_EXECUTORS"] = ",".join(limits)
                self.parts[name] = Part(name, kind, self.folder, way, environment)
                self.parts[name].set_clock(0)
                self.parts[name].version = names.index(name) % 2
                self.parts[name].start()
        self.await_gateways()

    def await_gateways(self) -> None:
        for address in self.gateways.values():
            wait_until(partial(_serves, address), "a gateway is ready and knows the types", 60)

    def close(self) -> list[int]:
        """Ends everything in order; the processes that were left over."""
        pids = [pid for part in self.parts.values() for pid in part.tree()]
        thaw(pids)
        for part in self.parts.values():
            part.wanted = False
            if part.alive and part.process is not None:
                part.process.terminate()
        left = _await_end(pids, 40)
        for pid in left:
            _send(pid, signal.SIGKILL)
        for part in self.parts.values():
            if part.process is not None:
                part.process.wait()
            if part.way is not None:
                part.way.stop()
        self.stop_store()
        shutil.rmtree(self.data, ignore_errors=True)
        return left

    def look(self) -> None:
        """Whoever ended although no fault ended it is noted, and started again, as a service manager does."""
        for part in self.parts.values():
            if part.wanted and not part.alive and part.process is not None:
                self.note_death(part)
                part.start()

    def note_death(self, part: Part) -> None:
        status = part.process.returncode if part.process else 0
        self.died.append(f"{part.name} {describe_exit(status)} by itself; its last words:\n{part.words()}")

    # --- Redis, as its administrator ---

    def tell(self, act: Callable[[Redis], object], seconds: float = 20.0) -> bool:
        """Tells Redis something, as soon as it listens; whether it did."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                act(self.admin)
                return True
            except (RedisError, OSError):
                self.while_waiting()
                time.sleep(0.1)
        return False


def _await_end(pids: list[int], seconds: float) -> list[int]:
    """Those that live on after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        living = [pid for pid in pids if _lives(pid)]
        if not living or time.monotonic() > end:
            return living
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
