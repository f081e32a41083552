"""Finds an attempt that blocks the event loop of its executor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import CodeType, FrameType

from firmq.worker.executors import own_signals
from firmq.worker.executors.ipc import TIME_LIMIT_SIGNAL

REPORT_AFTER = 0.75
"""Seconds without a turn of the loop after which the blocking attempt is reported."""
BREAK_AFTER = 1.2
"""Seconds after which it is interrupted, so that the attempts beside it continue."""
STUCK_AFTER = 2.5
"""Seconds after which only the end of this process helps: the attempt is in C code, or ignores the interruption."""
LATE = 0.1
"""Seconds by which a turn of the loop may be late before attempts get them back at their time limits."""
_BEAT = 0.1
_LOOK = 0.1
_MOST_FRAMES = 12
_OURS = os.path.dirname(__file__)


class LoopBlocked(BaseException):
    """Raised inside a coroutine that keeps the event loop from the others.

    A BaseException, as `TimeLimitExceeded` is.
    """


@dataclass(frozen=True, slots=True)
class Blockage:
    """A blocked event loop: for how long, where (`file:line in function`), and the whole stack."""

    seconds: float
    where: str
    stack: str


class LoopWatch:
    """Looks from a thread of its own whether the loop turns, while attempts run in it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[Blockage], None],
        give_up: Callable[[], None],
        may_interrupt: Callable[[asyncio.Task[object]], bool],
        waits_for_worker: Collection[CodeType],
    ) -> None:
        """`report` is called once for each blockage, `give_up` when it cannot be ended; both in the watching thread.

        No attempt is to blame for a function of `waits_for_worker`.
        """
        self.loop = loop
        self.report = report
        self.give_up = give_up
        self.may_interrupt = may_interrupt
        self.waits_for_worker = waits_for_worker
        self._main = threading.get_ident()
        self._main_thread_id = threading.get_native_id()
        self._cpu_clock = time.pthread_getcpuclockid(self._main)
        self._cpu_at_turn = 0.0
        self._active = threading.Event()
        self._turned_at = time.monotonic()
        self._blocked_before = 0.0
        self._blocked_task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        own_signals.handle(TIME_LIMIT_SIGNAL, self._on_signal)
        threading.Thread(target=self._watch, name="loop watch", daemon=True).start()

    def begin(self) -> None:
        """Begins to watch: an attempt runs."""
        if self._timer is None:
            self._turned_at = time.monotonic()
            self._turn()
            self._active.set()

    def rest(self) -> None:
        """Stops watching: no attempt runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._active.clear()

    def blocked(self) -> float:
        """Returns for how many seconds the loop has been blocked so far, while attempts ran."""
        late = time.monotonic() - self._turned_at - _BEAT
        return self._blocked_before + (late if late > LATE else 0.0)

    def _turn(self) -> None:
        self._blocked_before = self.blocked()
        self._turned_at = time.monotonic()
        self._cpu_at_turn = time.clock_gettime(self._cpu_clock)
        self._timer = self.loop.call_later(_BEAT, self._turn)

    def _watch(self) -> None:
        reported_at = given_up_at = in_task_since = 0.0
        seen: asyncio.Task[object] | None = None
        while True:
            self._active.wait()
            time.sleep(_LOOK)
            # Many short steps in one turn of the loop are no blockage: only the time of a single task counts.
            if (task := asyncio.current_task(self.loop)) is not seen:
                seen, in_task_since = task, time.monotonic()
            turned_at = max(self._turned_at, in_task_since)
            blocked = time.monotonic() - turned_at - _BEAT
            if blocked < REPORT_AFTER or not self._active.is_set() or self._is_excused(blocked):
                continue
            if reported_at != turned_at:
                reported_at = turned_at
                self.report(self._blockage(blocked))
            if blocked > STUCK_AFTER:
                if given_up_at != turned_at:
                    given_up_at = turned_at
                    self.give_up()
            elif blocked > BREAK_AFTER:
                self._blocked_task = asyncio.current_task(self.loop)
                signal.pthread_kill(self._main, TIME_LIMIT_SIGNAL)

    def _is_excused(self, blocked: float) -> bool:
        """Returns whether no attempt is to blame: the machine does not let it run, or the worker does not read."""
        frame = self._frame()
        if frame is not None and frame.f_code in self.waits_for_worker:
            return True
        used = time.clock_gettime(self._cpu_clock) - self._cpu_at_turn
        return used < blocked / 2 and state_of(self._main_thread_id) == "R"

    def _blockage(self, seconds: float) -> Blockage:
        frames = traceback.extract_stack(self._frame())
        # The frames of the loop and of this package come first; only the handler's own help.
        own = [each for each in frames if not each.filename.startswith(_OURS) and "asyncio" not in each.filename]
        last = (own or frames)[-1]
        stack = "".join(traceback.format_list((own or list(frames))[-_MOST_FRAMES:]))
        return Blockage(seconds, f"{last.filename}:{last.lineno} in {last.name}", stack)

    def _frame(self) -> FrameType | None:
        """Returns where the loop's thread is."""
        return sys._current_frames().get(self._main)  # noqa: SLF001  # documented in spite of its name

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Interrupts the coroutine that blocks the loop; does nothing when the loop has turned since."""
        task, self._blocked_task = self._blocked_task, None
        if task is None or time.monotonic() - self._turned_at < _BEAT:
            return
        if self.may_interrupt(task) and asyncio.current_task(self.loop) is task:
            raise LoopBlocked("the coroutine kept the event loop from the others")


def state_of(thread: int) -> str:
    """Returns the state of a thread of this process as Linux has it (`R`: it runs or wants to); "" elsewhere."""
    try:
        with open(f"/proc/self/task/{thread}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
