"""Everything one measured run needs: a fresh server, a fresh sheet, the system's agent and its workers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.labs.bench import environments, processes, server
from tests.labs.bench.errors import BenchError
from tests.labs.bench.sheet import Sheet

POLL_SECONDS = 0.005
WEIGH_SECONDS = 0.25
ASK_SECONDS = 60.0
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CONFIRM_WRITES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is the same in every run of a session."""

    binary: str
    append_only: str
    processes: int


class Agent:
    """The process that enqueues and counts for us inside the system's environment."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    def ask(self, do: str, timeout: float = ASK_SECONDS, **details: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):  # a dead agent is noticed, with its last words, when it is read
            self.process.stdin.write(json.dumps({"do": do, "timeout": timeout, **details}) + "\n")
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], timeout + 5)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise BenchError(f"{do}: {'ended' if ready else 'no answer in time'}: {processes.tail(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{do}: {answer['error']}")
        return answer


@dataclass(slots=True, kw_only=True)
class Stage:
    """One run. Used as `with staged(...) as stage`; whatever it started is ended when the block is left."""

    setup: Setup
    system: str
    python: Path
    folder: Path
    redis: server.Server
    sheet: Sheet
    env: Mapping[str, str]
    slots: int = 0
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    peak_pss: int = 0
    _weigh_at: float = 0.0

    @property
    def log(self) -> Path:
        return self.folder / "workers.log"

    @contextlib.contextmanager
    def agent(self) -> Iterator[Agent]:
        log = self.folder / "agent.log"
        command = [str(self.python), "-m", "tests.labs.bench.agent", self.system]
        with log.open("ab") as errors:
            process = subprocess.Popen(
                command,
                env=self.env,
                cwd=environments.ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            yield Agent(process, log)
        finally:
            end_agent(process)

    def start_workers(self, commands: list[list[str]]) -> None:
        for command in commands:
            self.workers.append(processes.start(command, env=self.env, log=self.log, cwd=environments.ROOT))

    def stop_workers(self) -> None:
        processes.stop(self.workers)
        self.workers.clear()

    def worker_pids(self) -> list[int]:
        return [process.pid for process in self.workers]

    def wait_for(self, count: int, timeout: float) -> None:
        """Return when the first `count` tasks have begun. Looks into shared memory only."""
        deadline = time.monotonic() + timeout
        while self.sheet.unbroken() < count:
            if any(process.poll() is not None for process in self.workers):
                raise BenchError(f"a worker ended: {processes.tail(self.log)}")
            if self.slots:
                self._weigh()
            if time.monotonic() > deadline:
                begun = self.sheet.begun()
                raise BenchError(f"{begun} of {count} tasks began in {timeout:.0f} s: {processes.tail(self.log)}")
            time.sleep(POLL_SECONDS)

    def _weigh(self) -> None:
        """Notes the workers' memory now and then: reading it holds them up for some milliseconds."""
        if time.monotonic() > self._weigh_at:
            self.peak_pss = max(self.peak_pss, processes.memory(self.worker_pids())[1])
            self._weigh_at = time.monotonic() + WEIGH_SECONDS


def end_agent(process: subprocess.Popen[str]) -> None:
    """An agent ends when its input does; one that is stuck inside a system is killed."""
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(timeout=processes.GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        processes.kill_all(processes.members([process.pid]))
        process.wait()
    process.stdout.close()


@contextlib.contextmanager
def staged(setup: Setup, system: str, *, tasks: int, kept: bool = True, slots: int = 0) -> Iterator[Stage]:
    """A run of so many tasks; `slots` is how many waiting ones the workers are to run at a time."""
    python = environments.interpreter(system)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with server.running(setup.binary, folder, setup.append_only) as redis, sheet_file(folder) as path:
            env = environment(setup, redis.url, path, kept=kept, slots=slots)
            sheet = Sheet.create(path, tasks)
            stage = Stage(
                setup=setup, system=system, python=python, folder=folder, redis=redis, sheet=sheet, env=env, slots=slots
            )
            try:
                yield stage
            finally:
                stage.stop_workers()


@contextlib.contextmanager
def sheet_file(folder: Path) -> Iterator[Path]:
    """In memory where there is such a place, so that no disk is written while a run is measured."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else folder
    path = place / f"{folder.name}.sheet"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def environment(setup: Setup, url: str, sheet: Path, *, kept: bool, slots: int) -> dict[str, str]:
    """Little of the user's own environment: a stray RQ_REDIS_URL or CELERY_… would change what is measured."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **passed,
        "PYTHONPATH": str(environments.ROOT),
        "BENCH_REDIS_URL": url,
        "BENCH_SHEET": str(sheet),
        "BENCH_RESULTS": "kept" if kept else "none",
        "BENCH_PROCESSES": str(setup.processes),
        "BENCH_SLOTS": str(slots // setup.processes),
    }
