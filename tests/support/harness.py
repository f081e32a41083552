"""Real processes for tests: a worker or housekeeper on a Redis of its own, and waiting for what they do."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from redis.client import PubSub

from firmq.shared.domain.task import NewTask, TaskDetail, TaskState, new_task_id
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import NO_TYPES, Workers
from firmq.worker.executors.process_tree import children
from tests.support.fork_server import MODULES, ForkServers

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = {"critical": 6, "high": 4, "normal": 3, "low": 1}
QUICK = {
    "INITIAL_RETRY_DELAY": "0.05",
    "LEASE_TIME": "3",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "false",  # a killed one is replaced at once
    "HOUSEKEEPER_UNLOCK_INTERVAL": "0.05",
    "HOUSEKEEPER_TIMEOUT_INTERVAL": "0.2",
    "HOUSEKEEPER_RECOVERY_INTERVAL": "0.5",
    "HOUSEKEEPER_RECOVERY_GRACE": "1",
    "WORKER_METRICS_PORT": "0",
    "HOUSEKEEPER_METRICS_PORT": "0",
    "TASK_MODULES": "firmq.worker.handlers.examples,tests.support.handlers",
    "WORKER_EXECUTORS": "1",
    "LOG_LEVEL": "INFO",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # there are none; a process looks through all that is installed for them
}

PATIENT = {"gateway": {"REDIS_TIMEOUT": "10"}, "dashboard": {"REDIS_TIMEOUT": "10"}}
"""Beside the quick settings: the shipped 0.9 s are less than a busy machine stands still now and then."""

fork_servers: ForkServers | None = None
"""What starts parts for tests; without it, each is started as it ships."""


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> str:
    """How a process was started; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


PATIENCE = 3 if os.environ.get("CI") == "true" else 1
"""How many times as long a test waits where the machine is shared. A wait below 20 s is a bound that it checks."""


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Waits for an event, with an end; what the condition gave then.

    The longer it takes, the less often it is asked for: what is asked takes the processor from what is waited for."""
    begun, seconds = time.monotonic(), seconds * (PATIENCE if seconds >= 20 else 1)
    while (waited := time.monotonic() - begun) < seconds:
        if answer := condition():
            return answer
        time.sleep(min(0.01 + waited / 20, 0.05))
    raise AssertionError(f"within {seconds:g} s it did not happen that {what}")


def answered(channel: PubSub) -> Any:
    """The message that has come on this channel; None if there is none. The answer to a ping comes after it."""
    channel.ping()
    found = channel.get_message(timeout=60)
    if found["type"] == "pong":
        return None
    assert channel.get_message(timeout=60)["type"] == "pong"
    return found


_FIRST_PORT = 10_000 + os.getpid() % 110 * 200
_PORTS = itertools.cycle(range(_FIRST_PORT, _FIRST_PORT + 200))
"""Below those that Linux gives to outgoing connections, and others for each process of the tests."""


def free_port() -> int:
    """A port that nobody listens on, and that no program takes by chance before it is used."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: a cycle has no end")


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values of metrics by name and labels."""


def scrape(port: int, timeout: float = 0.5) -> Samples:
    """What a part of this machine shows to Prometheus; nothing when it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=timeout) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@dataclass
class System:
    """A Redis with our parts on it."""

    redis: Redis
    url: str
    log_dir: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    log_to: int | None = None
    """A file descriptor for the logs of processes that are started from now on, instead of files."""
    as_shipped: bool = False
    """Whether parts are started by their command alone, with nothing imported before."""

    def __post_init__(self) -> None:
        self.scripts = Scripts(self.redis)
        self.queues = Queues(self.scripts, WEIGHTS)
        self.records = Records(self.scripts, list(WEIGHTS))
        self.dead_letters = DeadLetters(self.scripts, self.records)
        self.workers = Workers(self.redis)

    # --- processes ---

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a part, as `firmq PART` does, or `python -m ...`, with quick settings; its log goes to a file."""
        return self.start_in(ROOT, *(["firmq"] if command[0] in MODULES else []), *command, **environment)

    def start_in(self, folder: Path, *module: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts `python -m ...` with the code in a folder."""
        part = module[1] if module[0] == "firmq" else module[0]
        quick = QUICK | PATIENT.get(part, {})
        env = {**os.environ, **quick, "REDIS_URL": self.url, **self.environment, **environment}
        with open(self.log_dir / f"{part}-{len(self.processes)}.log", "wb") as file:
            log = file.fileno() if self.log_to is None else self.log_to
            forks = fork_servers if folder == ROOT and not self.as_shipped else None
            if forks and module == ("firmq", part) and forks.can_start(part, env):
                process = forks.start(part, env, log)
            else:
                process = subprocess.Popen(
                    [sys.executable, "-m", *module],
                    env=env,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        self.processes.append(process)
        return process

    def start_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        """A worker that is ready to take tasks."""
        process = self.start("worker", **environment)
        wait_until(lambda: self._announced(process), "the worker announced itself", 60)
        return process

    def _announced(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self.logs()
        name = next((info.name for info in self.workers.all() if info.pid == process.pid and info.executors), None)
        return name is not None and self.redis.hget(self.scripts.keys.TYPES_OF, name) not in (None, NO_TYPES.encode())

    def start_housekeeper(self, **environment: str) -> subprocess.Popen[bytes]:
        return self.start("housekeeper", **environment)

    def executors(self, worker: subprocess.Popen[bytes], kind: str = "serial") -> list[int]:
        """Process ids of a worker's executors of this kind; it has a watchdog too."""
        return [pid for pid in children(worker.pid) if f" {kind} " in command_line(pid)]

    def stop(self) -> None:
        """Ends what is left: first in order, then by force."""
        living = [each for each in self.processes if each.poll() is None]
        for each in living:
            each.send_signal(signal.SIGCONT)
            each.terminate()
        time.sleep(0.05)
        for each in living:
            each.terminate()  # the second one stops a drain
        end = time.monotonic() + 5
        for each in living:
            try:
                each.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in self.log_dir.glob("*.log"))

    # --- tasks ---

    def submit(self, task_type: str, data: str = "null", queue: str = "normal", **options: Any) -> str:
        """Submits one task with JSON data; its id."""
        return self.submit_many([(task_type, data)], queue, **options)[0]

    def submit_many(self, tasks: Sequence[tuple[str, str]], queue: str = "normal", **options: Any) -> list[str]:
        new = [NewTask(id=new_task_id(), type=kind, data=data, queue=queue, **options) for kind, data in tasks]
        self.queues.submit(new)
        return [task.id for task in new]

    def ended(self, task_id: str, seconds: float = 60.0) -> TaskDetail:
        """The task once it has ended."""
        wait_until(lambda: self.records.state(task_id).ended, f"task {task_id} ended", seconds)
        return self.records.get(task_id)

    def all_ended(self, seconds: float = 120.0) -> Mapping[TaskState, int]:
        """The counts once nothing waits or runs any more."""

        def counts() -> Mapping[TaskState, int] | None:
            now = self.records.counts()
            return now if not any(count for state, count in now.items() if not state.ended) else None

        try:
            answer: Mapping[TaskState, int] = wait_until(counts, "all tasks ended", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.records.counts()}\n{self.logs()[-4000:]}") from None
        return answer


@contextmanager
def running_system(redis: Redis, url: str, log_dir: Path, **environment: str) -> Iterator[System]:
    """A system whose processes are gone afterwards, whatever happened."""
    system = System(redis, url, log_dir, environment)
    try:
        yield system
    finally:
        system.stop()
