"""An executor in the worker: a process, three pipes and its assigned tasks."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.executors import ipc, process_tree
from firmq.worker.executors.ipc import ExecutorEnds, FrameReader
from firmq.worker.executors.operating_system import memory_bytes, memory_exceeds

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that an executor may take to end by itself, with its hooks."""
_DEATH_IS_KNOWN = 2.0
"""Seconds within which the worker notices that an executor was killed."""
_FRAME_BYTES = 4 << 20
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # the worker raises its own later
_FILES_PER_TASK = 8
_LOOK_SHARE = 50
"""Measuring the memory of all descendants takes a fiftieth of the time at most: many large ones take long."""


class ExecutorProcess:
    """One executor.

    `assigned` holds its tasks in the order in which it begins them: a task has begun once its start token was read. A
    serial executor runs the first of them; a concurrent one has `slots` and runs as many at a time.
    """

    def __init__(
        self, worker: str, kind: str = ipc.SERIAL, slots: int = 1, longest_frame: int = ipc.MOST_BYTES
    ) -> None:
        """Raises OSError when the system has no more files or processes; none is left open then."""
        self.kind = kind
        self.slots = slots
        with contextlib.ExitStack() as opened:
            tasks_read, self._tasks = _unless_failed(opened, ipc.wide_pipe())
            self._start_tokens_read, self._start_tokens = _unless_failed(opened, os.pipe())
            self.events, events_write = _unless_failed(opened, ipc.wide_pipe())
            os.set_blocking(self._tasks, False)
            os.set_blocking(self._start_tokens_read, False)
            os.set_blocking(self.events, False)
            mark = secrets.token_hex(16)
            ends = ExecutorEnds(tasks_read, self._start_tokens_read, events_write)
            self.process = _start(kind, worker, ends, mark, self._file_limit())
            opened.pop_all()
        os.close(tasks_read)
        os.close(events_write)
        self.identity = process_tree.ProcessIdentity(self.process.pid, process_tree.started_at(self.process.pid), mark)
        self.trusted_until = float("inf")
        self.untrusted_at = -float("inf")
        self.assigned: dict[int, ClaimedTask] = {}
        # No tasks are assigned before `ready` or after `retiring`: they would wait for a start or an end beside idle
        # executors. A `spent` one works until its replacement may be started, or a slow start would leave none.
        self.ready = False
        self.closed_pipe_at: float | None = None
        self.closed_to_input = False
        """Whether a handler wrote into its pipe: later frames are not read, as one could forge a task's outcome."""
        self.retiring = False
        self.retire_by: float | None = None
        """When its tasks are returned that have not ended, if it may not run them to their end."""
        self.generation = 0
        """Which reload of handlers it was started after."""
        self.spent = False
        """Whether it is to be replaced."""
        self.turn_began_at = 0.0
        self.last_event_at = 0.0
        self.pinged_at: float | None = None
        self.culprits: set[int] = set()
        """The numbers of the tasks for which it was killed."""
        self.done = 0
        self.killed_because: str | None = None
        self.stop_by: float | None = None
        """When it is killed, if a task ignores its time limit or cancellation, or the drain."""
        self._unsent = bytearray()
        self._reader = FrameReader(longest_frame)
        self._shutdown_sent = False
        self._shutdown_sent_at = 0.0
        self._next_look_below = 0.0
        self._closed = False

    @property
    def idle(self) -> bool:
        """Returns whether it could begin a task at once."""
        return self.ready and not self.retiring and not self.assigned

    @property
    def concurrent(self) -> bool:
        return self.kind == ipc.CONCURRENT

    def room(self, ahead: int) -> int:
        """Returns how many more tasks it can take: those that it begins at once, and so many ahead of their start."""
        return max(0, self.slots + ahead - len(self.assigned)) if self.ready and not self.retiring else 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def _file_limit(self) -> int:
        """Returns the limit of open files with which the worker was started, if it is enough for so many tasks."""
        return _FILES if _FILES_PER_TASK * self.slots <= _FILES else resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    # --- assigning and taking back ---

    def assign(self, tasks: Sequence[ClaimedTask]) -> None:
        """Assigns tasks, to be run after its others."""
        if not self.assigned:
            self._next_begins()
        now = time.monotonic()
        for task in tasks:
            task.began_at = now
            self.assigned[task.number] = task
        for part in _frames(tasks):
            self._unsent += ipc.frame((part[0].clock_offset_us, [tuple(task.assignment()) for task in part]))
        self.flush()
        os.write(self._start_tokens, ipc.start_tokens([task.number for task in tasks]))

    def take_back(self) -> list[ClaimedTask]:
        """Takes back and returns the tasks that it has not begun."""
        numbers = ipc.revoke_start_tokens(self._start_tokens_read, len(self.assigned) or 1)
        return [self.assigned.pop(number) for number in numbers]

    def waiting(self) -> int:
        """Returns how many of its tasks it has not begun."""
        return ipc.unread_bytes(self._start_tokens_read) // ipc.START_TOKEN_BYTES

    def full_since(self) -> float:
        """Returns when the first task was assigned that waits for a slot; infinity if there is none."""
        begun = len(self.assigned) - self.waiting()
        waiting = list(itertools.islice(self.assigned.values(), begun, begun + 1)) if begun >= self.slots else []
        return waiting[0].began_at if waiting else math.inf

    def begun(self) -> list[ClaimedTask]:
        """Returns the tasks that it has begun."""
        return list(itertools.islice(self.assigned.values(), max(0, len(self.assigned) - self.waiting())))

    def began_at(self, claimed: ClaimedTask) -> float:
        """Returns when it began a task, on the monotonic clock: a serial executor when the one before had ended.

        For a concurrent executor it is when the task was assigned: a slot was free, or is soon.
        """
        return claimed.began_at if self.concurrent else self.turn_began_at

    def command(self, name: str, number: int = 0) -> None:
        """Sends a command to a concurrent executor."""
        self._unsent += ipc.frame((name, number))
        self.flush()

    def flush(self) -> bool:
        """Writes as much as the pipe takes; returns whether all is written."""
        while self._unsent:
            try:
                written = os.write(self._tasks, self._unsent)
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self._unsent.clear()  # it died; handled elsewhere
                return True
            del self._unsent[:written]
        return True

    # --- events ---

    def read(self) -> Iterator[tuple[Any, ...]]:
        """Yields the frames that have arrived."""
        while not self._closed and not self.closed_to_input:
            try:
                data = os.read(self.events, 1 << 18)
            except BlockingIOError:
                return
            if not data:
                self.closed_pipe_at = self.closed_pipe_at or time.monotonic()
                return
            self.last_event_at, self.pinged_at = time.monotonic(), None
            yield from self._reader.feed(data)
            if len(data) < 1 << 16:
                return

    def finished(self, number: int) -> ClaimedTask | None:
        """Removes an ended task from its tasks; the next one has begun."""
        self.done += 1
        if not self.concurrent:
            self._next_begins()
        return self.assigned.pop(number, None)

    def _next_begins(self) -> None:
        self.turn_began_at = time.monotonic()
        self.stop_by = None

    def memory_bytes(self) -> int:
        return memory_bytes(self.pid)

    def exceeds(self, limit: int, now: float) -> bool:
        """Returns whether it uses more memory than this, in bytes; now and then including its descendants."""
        if now < self._next_look_below:
            return self.memory_bytes() > limit
        began = time.thread_time()
        exceeds = memory_exceeds(limit, self.pid)
        self._next_look_below = now + max(1.0, _LOOK_SHARE * (time.thread_time() - began))
        return exceeds

    # --- the end ---

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self, because: str | None = None) -> None:
        """Kills it and every process that its handlers started; without a reason it counts as a crash."""
        self.killed_because = self.killed_because or because
        self._end_all()

    def _end_all(self) -> list[str]:
        """Kills it and its descendants; returns the names of those that handlers started."""
        names = process_tree.end([self.identity])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # outside Linux this is all
        return names

    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def was_ended_by_watchdog(self) -> bool:
        """Returns whether the watchdog killed it because its worker sent nothing until the end of its leases.

        The worker may be running again by the time it learns of the death.
        """
        now = time.monotonic()
        untrusted = now > self.trusted_until or now < self.untrusted_at + _DEATH_IS_KNOWN
        return self.process.returncode == -signal.SIGKILL and untrusted

    def retire(self, within: float | None = None) -> None:
        """Assigns no more tasks: it ends when it has read its last start token, or ended its tasks `within` seconds."""
        self.retiring = True
        self.retire_by = time.monotonic() + within if within is not None else None

    def shutdown(self) -> None:
        """Closes the pipes to it, after which it ends by itself."""
        if not self._shutdown_sent:
            self._shutdown_sent = True
            self._shutdown_sent_at = time.monotonic()
            self._unsent.clear()  # the number of a closed pipe is soon reused
            os.close(self._tasks)
            os.close(self._start_tokens)

    def overdue(self, now: float) -> bool:
        """Returns whether it was retired and has not ended, as when a thread of a handler keeps it alive."""
        return self._shutdown_sent and now > self._shutdown_sent_at + PATIENCE

    def reap(self) -> None:
        """Waits for the dead process, and kills the processes that it left behind unless it exited cleanly."""
        if (self.process.poll() != 0 or self.assigned) and (names := self._end_all()):
            log.warning("killed processes that executor %d left behind: %s", self.pid, ", ".join(names))
        self.process.wait()
        self.shutdown()
        self._closed = True
        os.close(self._start_tokens_read)
        os.close(self.events)

    def cause_of_death(self) -> str:
        """Returns the cause of death from its exit status, in words."""
        code = self.process.returncode
        if code is None:
            return "it does not respond"
        if code >= 0:
            return f"the process ended with status {code} during the task (os._exit or similar)"
        try:
            number = signal.Signals(-code)
        except ValueError:
            return f"the process was killed by signal {-code}"
        return f"the process was killed by signal {-code} ({number.name}){_HINTS.get(number, '')}"


def _frames(tasks: Sequence[ClaimedTask]) -> Iterator[Sequence[ClaimedTask]]:
    """Yields tasks in parts for one frame each, because a frame has a greatest size."""
    size = start = 0
    for at, task in enumerate(tasks):
        own = len(task.data) + len(task.parent_results)
        if size + own > _FRAME_BYTES and at > start:
            yield tasks[start:at]
            size, start = 0, at
        size += own
    yield tasks[start:]


def _start(kind: str, worker: str, ends: ExecutorEnds, mark: str, most_files: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # a module of the project named like one of the standard library must not hide it
            *("-m", "firmq.worker.executors.child", kind, worker, str(os.getpid()), ends.as_argument()),
            str(most_files),
        ],
        env={**os.environ, process_tree.MARK: mark},
        stdin=subprocess.DEVNULL,
        pass_fds=(ends.tasks, ends.start_tokens, ends.events),
        start_new_session=True,
    )


def _unless_failed(opened: contextlib.ExitStack, ends: tuple[int, int]) -> tuple[int, int]:
    """Yields a pipe that is closed again if the block fails."""
    for end in ends:
        opened.callback(os.close, end)
    return ends


_HINTS = {
    signal.SIGSEGV: ": a bug in C code",
    signal.SIGABRT: ": C code aborted",
    signal.SIGKILL: ": by the kernel when memory ran out, or by a user",
}
