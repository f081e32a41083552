"""An executor that runs one handler after another in its main thread."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from contextvars import copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any

from firmq.shared.failpoints import failpoint
from firmq.worker.executors import ipc, own_signals
from firmq.worker.executors.attempt import Attempt, Attempts, leave
from firmq.worker.executors.coroutines import CoroutineRunner
from firmq.worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL, Assignment, EndedAttempt, ExecutorEnds
from firmq.worker.executors.leftovers import Leftovers
from firmq.worker.handlers import hooks
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.signals import TaskCancelled, TimeLimitExceeded

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.worker.handlers.hooks import Hook
    from firmq.worker.handlers.registry import Handler

STEP_THREADS = "task thread"
"""The names of threads that store steps of coroutines begin with this."""
_CANCEL_WAIT = 1.0
"""Seconds for which cancelled coroutines of an ended handler may still run."""


class SerialExecutor:
    """Runs assignments one by one; signals interrupt the running one."""

    def __init__(self, handlers: Mapping[str, Handler], settings: Settings, worker: str, ends: ExecutorEnds) -> None:
        self.ends = ends
        self.slots = 1
        self.attempts = Attempts(handlers, settings, worker, [__file__], self._send)
        self.coroutines = CoroutineRunner(min(_CANCEL_WAIT, settings.kill_grace / 2))
        self.interrupted_by = ""
        self.attempt: Attempt | None = None
        self.interruptible = False
        self.pid = os.getpid()
        self.main_thread = threading.get_ident()
        self.sending = threading.Lock()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of a coroutine of this executor; tasks that it leaves running are kept."""
        return self.coroutines.run_and_keep(coroutine)

    # --- the loop ---

    def run(self) -> None:
        """Runs tasks until the worker closes the pipes, or one leaves this process unfit for another."""
        os.register_at_fork(after_in_child=self._on_fork)
        own_signals.handle(TIME_LIMIT_SIGNAL, self._on_time_limit)
        own_signals.handle(CANCEL_SIGNAL, self._on_cancel)
        self.leftovers = Leftovers(self.attempts.report_leftovers, own_threads=STEP_THREADS)
        for item in self._assignments():
            fit = self._run_and_send(*item)
            del item  # an idle executor keeps no data of a task
            if not fit:
                return

    def _run_and_send(self, clock_offset_us: int, assignment: Assignment) -> bool:
        """Runs one task; returns whether this process can run another."""
        failpoint("executor.begin")
        self.attempt = attempt = Attempt(self.attempts, assignment, clock_offset_us)
        # A context of its own: context variables of a handler reach no other task.
        outcome = copy_context().run(self._run, attempt)
        failpoint("executor.done")
        self._send((ipc.OUTCOME, *outcome))
        failpoint("executor.sent")
        self.attempt = None
        return self._fit(attempt.name, outcome.run_us)

    def _fit(self, handler: str, run_us: int) -> bool:
        """Returns whether this process can run another task; else the worker gets the reason and replaces it."""
        if self.interrupted_by:
            # Its work is half done: an import, a lock, a message on a pooled database connection.
            what = f"work cut off by {self.interrupted_by}"
            self.attempts.report_leftovers(handler, what, logging.INFO, ends=True)
        elif self.coroutines.left:
            self.attempts.report_leftovers(handler, self.coroutines.left, logging.WARNING, ends=True)
        else:
            if self.coroutines.calls_left:
                self.coroutines.calls_left = False
                self.leftovers.report_calls(handler)
            return self.leftovers.fit_after(handler, run_us)
        return False

    def _assignments(self) -> Iterator[tuple[int, Assignment]]:
        """Yields the tasks with a start token; those whose token was revoked are skipped."""
        waiting: deque[tuple[int, Assignment]] = deque()
        with os.fdopen(self.ends.tasks, "rb", buffering=1 << 16) as file:
            for number in ipc.read_start_tokens(self.ends.start_tokens, self.leftovers.fit_when_idle):
                while True:
                    while not waiting:
                        frame = ipc.read_frame(file)
                        if frame is None:
                            return
                        waiting.extend((frame[0], Assignment(*fields)) for fields in frame[1])
                    item = waiting.popleft()
                    if item[1].number == number:
                        break
                yield item
                del item

    # --- one attempt ---

    def _run(self, attempt: Attempt) -> EndedAttempt:
        """Runs one task and returns its outcome; exceptions of the handler are caught."""
        result: bytes | BaseException
        try:
            attempt.begin()
            self.interruptible = True
            value = self._call_after_hooks(attempt) if self.attempts.hooked else attempt.call()
            if hasattr(type(value), "__await__"):  # also the result of a plain decorator of a coroutine function
                value = self.coroutines.run(value)
            result = attempt.result(value)
            if attempt.is_large(result):
                result = attempt.keep_result(result)
            self.interruptible = False
        except BaseException as caught:  # a handler may raise SystemExit, KeyboardInterrupt or its own BaseException
            result = caught
        self.interruptible = False
        if attempt.hooked and os.getpid() == self.pid:
            hooks.run_after(current_task(), attempt.judged(result), self._call_last_hook)
        if os.getpid() != self.pid:
            leave(result)
        return attempt.ended(result)

    def _call_after_hooks(self, attempt: Attempt) -> Any:
        call = attempt.prepared()
        attempt.hooked = True
        hooks.run_before(current_task(), self._call_hook)
        return call()

    def _call_hook(self, hook: Hook, *arguments: object) -> None:
        value = hook.function(*arguments)
        if hook.is_async:
            hooks.adopt(self.coroutines.run(hooks.with_context(value)))

    def _call_last_hook(self, hook: Hook, *arguments: object) -> None:
        """Calls a hook that follows the handler: the attempt can be interrupted there too, but only once."""
        try:
            self.interruptible = not self.interrupted_by
            self._call_hook(hook, *arguments)
        finally:
            self.interruptible = False

    # --- interruption ---

    def _on_time_limit(self, signum: int, frame: FrameType | None) -> None:
        # The signal may arrive after its task has ended: then the next one has not reached its limit.
        if not self.interruptible or self.attempt is None:
            return
        limit = self.attempt.assignment.limit
        if time.monotonic_ns() // 1000 - self.attempt.started_us >= int(limit * 1_000_000):
            self.interruptible = False
            self.interrupted_by = "its time limit"
            raise TimeLimitExceeded(f"the task exceeded its time limit of {limit:g} s")

    def _on_cancel(self, signum: int, frame: FrameType | None) -> None:
        if self.interruptible and self.attempt is not None:
            self.interruptible = False
            self.attempt.cancelled = True
            self.interrupted_by = "cancelling it"
            raise TaskCancelled("the task was cancelled while it ran")

    # --- events ---

    def _send(self, value: tuple[Any, ...]) -> None:
        """Writes one whole frame, without interruption by threads of the handler or signals."""
        data = ipc.frame(value)
        ours = threading.get_ident() == self.main_thread
        interruptible = self.interruptible
        if ours:
            self.interruptible = False  # the worker sends its signal again
        try:
            with self.sending:
                ipc.write(self.ends.events, data)
        finally:
            if ours:
                self.interruptible = interruptible

    def _on_fork(self) -> None:
        """Closes the pipes of the executor in a process that a handler forked."""
        if self.attempt is not None:
            self.attempt.recorder.mute()
        self.attempts.spans.mute()
        self.interruptible = False
        for fd in (self.ends.tasks, self.ends.start_tokens, self.ends.events):
            with contextlib.suppress(OSError):
                os.close(fd)
