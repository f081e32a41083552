"""What an adapter under `systems/` is, and what it can lean on. An adapter runs in its own system's environment.

The same module is imported by the agent, which enqueues and counts, and by the workers, which find the handlers in
it. What differs between runs comes from the environment and is read here, once.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

REDIS_URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")
RESULTS_KEPT = os.environ.get("BENCH_RESULTS", "kept") == "kept"
PROCESSES = int(os.environ.get("BENCH_PROCESSES", "2"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "0"))
"""How many waiting tasks each worker process is to run at a time; 0 where the workload is not about that."""
KEEP_SECONDS = 3600
THREADS_URL = f"{REDIS_URL}?max_connections={2 * SLOTS}" if SLOTS else REDIS_URL
"""For pools of connections that threads share: the 100 of redis-py would be too few for as many."""

BY_DEFAULT = ("drain", "drain-discarded", "idle", "busy", "mixed", "memory")
WAITING = ("waiting", "occupied")
"""Workloads with SLOTS, for systems that run many tasks at a time in one process."""

Args = Sequence[Any]
T = TypeVar("T")


class System(Protocol):
    """The module-level names of an adapter."""

    TITLE: str
    PACKAGES: tuple[str, ...]
    WORKLOADS: tuple[str, ...]

    def workers(self) -> list[list[str]]:
        """The commands that together start PROCESSES worker processes."""

    def enqueue(self, kind: str, calls: Sequence[Args]) -> None:
        """Enqueue many tasks the way the system's documentation advises for many."""

    def submit(self, kind: str, args: Args) -> None:
        """Enqueue one task; return when Redis has it."""

    def unfinished(self, enqueued: int) -> int:
        """How many of the tasks enqueued so far the system's own records in Redis do not yet show as done."""


def script(name: str) -> str:
    """A command installed in the environment that runs the adapter."""
    return str(Path(sys.executable).with_name(name))


@functools.cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on one loop that lives as long as the process: the systems' connections are bound to it."""
    return _runner().run(coroutine)
