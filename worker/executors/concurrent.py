"""An executor that runs many handlers at a time: coroutines on one event loop, functions that wait in threads."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from firmq.shared.failpoints import failpoint
from firmq.worker.executors import ipc
from firmq.worker.executors.attempt import Attempt, Attempts, leave
from firmq.worker.executors.handlers_loop import Begun, begun, new_loop
from firmq.worker.executors.interpreter_state import clear_thread_locals
from firmq.worker.executors.ipc import START_TOKEN_BYTES, Assignment, ExecutorEnds, FrameReader
from firmq.worker.executors.leftovers import Leftovers
from firmq.worker.executors.loop_watch import LATE, Blockage, LoopBlocked, LoopWatch
from firmq.worker.executors.process_state import Group, limits, of_threads
from firmq.worker.handlers import hooks
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.errors import decisive, is_a, is_error, leaves, traceback_of
from firmq.worker.handlers.signals import TaskCancelled, TimeLimitExceeded

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.worker.handlers.hooks import Hook
    from firmq.worker.handlers.registry import Handler

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_CANCEL_WAIT = 1.0
"""Seconds for which cancelled tasks of an ended handler may still run."""
THREADS = "task thread"
"""The names of threads that run handlers begin with this."""
_FEWEST_CALLS = 32
"""Threads of `asyncio.to_thread` at least: calls may wait for each other, and names are resolved there."""
_IDLE = 0.01
"""Seconds without an attempt after which leftovers of attempts are looked for."""


class WorkerStops(BaseException):
    """Stops an attempt whose worker stops; it runs again at no cost."""


class Running:
    """An attempt that runs."""

    __slots__ = (
        "attempt",
        "begun",
        "blocked_before",
        "closing",
        "context",
        "cut_off",
        "ended",
        "ending",
        "extended",
        "interruption",
        "lock",
        "of_thread",
        "on_loop",
        "raised",
        "result",
        "task",
        "thread",
        "thread_cleared",
        "thread_of_hooks",
        "timer",
    )

    def __init__(self, attempt: Attempt, of_thread: Group) -> None:
        self.attempt = attempt
        self.of_thread = of_thread
        self.begun = False
        """Whether its coroutine has made its first step; cancelled earlier, it never runs."""
        self.context = copy_context()
        """Of its own: context variables of its handler reach no other attempt."""
        self.on_loop = Begun()
        self.cut_off = False
        """Whether it was interrupted in a thread."""
        self.ended = False
        self.closing = False
        """Whether its coroutine is being closed, so that its errors do not count."""
        self.ending = False
        """Whether its outcome is being sent: nothing may interrupt that."""
        self.extended = False
        """Whether its time limit was moved because the loop was blocked."""
        self.blocked_before = 0.0
        """Seconds for which the loop had been blocked when it began."""
        self.interruption: BaseException | None = None
        self.lock = threading.Lock()
        self.raised: BaseException | None = None
        """The error of its function in a thread: a coroutine turns StopIteration into RuntimeError."""
        self.result: bytes | BaseException | None = None
        """How the handler ended, while the hooks that follow it run: nothing that they do changes that."""
        self.task: asyncio.Task[None] | None = None
        self.thread = 0
        self.thread_cleared = False
        self.thread_of_hooks: ThreadPoolExecutor | None = None
        """The one thread in which its hooks and its handler run, if they are plain functions."""
        self.timer: asyncio.TimerHandle | None = None

    def interrupt(self, error: BaseException) -> None:
        """Stops it: a coroutine at its await, a thread at its next bytecode."""
        self.interruption = error
        with self.lock:
            if self.thread:
                self.cut_off = True
                _raise_in(self.thread, type(error))
            elif self.task is not None and self.begun:
                self.task.cancel()

    def call_in_thread(
        self, known: BaseException | None, function: Callable[..., Any], *arguments: object
    ) -> tuple[Any, BaseException | None]:
        """Runs a function in this thread, where `interrupt` can reach it; `known` is the interruption so far.

        Returns its result and its error: a future takes no StopIteration, and changes some other errors.
        """
        if not self.thread_cleared:
            self.thread_cleared = True
            clear_thread_locals()
            self.of_thread.restore()
        self.thread, pid = threading.get_ident(), os.getpid()
        value: Any = None
        raised: BaseException | None = None
        try:
            if self.interruption is not None and self.interruption is not known:
                raise self.interruption
            value = function(*arguments)
        except BaseException as error:
            raised = error
        finally:
            if os.getpid() != pid:
                leave(b"" if raised is None else raised)
            with self.lock:
                _raise_in(self.thread, None)  # nothing is raised in the next attempt of this thread
                self.thread = 0
        return value, raised


class ConcurrentExecutor:
    """Runs up to `slots` attempts at a time."""

    def __init__(self, handlers: Mapping[str, Handler], settings: Settings, worker: str, ends: ExecutorEnds) -> None:
        self.ends = ends
        self.slots = settings.slots
        self.kill_grace = settings.kill_grace
        self.attempts = Attempts(handlers, settings, worker, [__file__], self._send)
        self.running: dict[int, Running] = {}
        self.pid = os.getpid()
        self._assigned: deque[tuple[int, Assignment]] = deque()
        self._begun: deque[int] = deque()
        self._frames = FrameReader()
        self._sending = threading.Lock()
        self._outbox: list[bytes] = []
        self._listening = False
        self._left: set[Running] = set()
        """Ended attempts whose tasks are being cancelled."""
        self._idle_check: asyncio.TimerHandle | None = None
        self._unchecked: dict[str, None] = {}
        self._threads = ThreadPoolExecutor(self.slots, THREADS)
        self._idle_threads: list[ThreadPoolExecutor] = []
        """Single threads, for attempts with hooks."""
        self.loop = new_loop(max(_FEWEST_CALLS, self.slots))

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of a coroutine of this executor, run on the loop of its handlers."""
        return self.loop.run_until_complete(coroutine)

    # --- the loop ---

    def run(self) -> None:
        """Runs tasks until the worker closes the pipes."""
        loop = self.loop
        loop.keep_settings()
        self._limits = limits()
        self._of_thread = of_threads()
        os.register_at_fork(after_in_child=self._on_fork)
        waits_for_worker = (ipc.write.__code__, ConcurrentExecutor._write.__code__)
        self.watch = LoopWatch(loop, self._on_blocked, self._on_stuck_loop, self._may_interrupt, waits_for_worker)
        self.leftovers = Leftovers(self.attempts.report_leftovers, own_threads=THREADS)
        os.set_blocking(self.ends.tasks, False)
        loop.add_reader(self.ends.tasks, self._on_tasks)
        self._listen()
        self._stopped = False
        while not self._stopped:
            # A task that a handler started may raise one of these, which end `run_forever`.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    def _stop(self) -> None:
        self._stopped = True
        self.loop.stop()

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self.loop.add_reader(self.ends.start_tokens, self._on_start_tokens)

    # --- assignments ---

    def _on_tasks(self) -> None:
        try:
            data = os.read(self.ends.tasks, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._stop()
            return
        for first, second in self._frames.feed(data):
            if isinstance(first, int):
                self._assigned.extend((first, Assignment(*fields)) for fields in second)
            else:
                self._start_begun()  # the command may be about a task of a frame before
                self._on_command(first, second)
        self._start_begun()

    def _on_start_tokens(self) -> None:
        free = self.slots - len(self.running) - len(self._begun)
        if free <= 0:
            self._listening = False
            self.loop.remove_reader(self.ends.start_tokens)
            return
        try:
            data = os.read(self.ends.start_tokens, free * START_TOKEN_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._stop()
            return
        self._begun.extend(number for (number,) in struct.iter_unpack("<I", data))
        self._start_begun()

    def _start_begun(self) -> None:
        """Starts the attempts with a start token; those whose token was revoked are skipped."""
        while self._begun:
            number = self._begun[0]
            while self._assigned and self._assigned[0][1].number != number:
                self._assigned.popleft()
            if not self._assigned:
                return  # the task itself is still on its way
            self._begun.popleft()
            self._start(*self._assigned.popleft())

    def _start(self, clock_offset_us: int, assignment: Assignment) -> None:
        failpoint("executor.begin")
        running = Running(Attempt(self.attempts, assignment, clock_offset_us), self._of_thread)
        self.running[assignment.number] = running
        self.watch.begin()
        running.task = self.loop.create_task(self._run(running), context=running.context)

    # --- one attempt ---

    async def _run(self, running: Running) -> None:
        attempt = running.attempt
        result: bytes | BaseException
        try:
            self._begin(running)
            begun.set(running.on_loop)
            if running.interruption is not None:
                raise running.interruption
            run = self._run_after_hooks if self.attempts.hooked else self._run_handler
            result = attempt.result(await run(running))
            if attempt.is_large(result):
                result = await self._in_thread(running, attempt.keep_result, result)
        except BaseException as error:  # a handler may raise SystemExit, KeyboardInterrupt or its own BaseException
            if running.closing:
                return
            if type(error) is RuntimeError and error.__cause__ is running.raised is not None:
                error = running.raised
            running.raised = None
            result = _judged(error, running.interruption)
        if attempt.hooked:
            await self._run_last_hooks(running, result)
        if not running.closing:
            self._end(running, result)

    def _begin(self, running: Running) -> None:
        """Begins an attempt at its first step: one that blocked the loop before it takes nothing of its time."""
        running.begun = True
        running.attempt.starts_now()
        running.blocked_before = self.watch.blocked()
        running.timer = self.loop.call_later(running.attempt.assignment.limit, self._on_time_limit, running)
        running.attempt.begin()

    async def _run_handler(self, running: Running) -> Any:
        attempt = running.attempt
        if attempt.in_thread:
            return await _awaited(await self._in_thread(running, attempt.call))
        return await _awaited((await self._prepared(running))())

    def _end(self, running: Running, result: bytes | BaseException) -> None:
        running.ending = True
        begun.set(None)
        if os.getpid() != self.pid:
            leave(result)
        self._finish(running, result)

    async def _run_after_hooks(self, running: Running) -> Any:
        """Runs the `before_task` hooks and the handler; returns the handler's result."""
        attempt = running.attempt
        call = await self._prepared(running)
        attempt.hooked = True
        for hook in hooks.HOOKS.before_task:
            with hook.guarded((*hooks.ENDS_ATTEMPT, LoopBlocked, WorkerStops)):
                await self._call_hook(running, hook, current_task())
            if running.interruption is not None:
                raise running.interruption
        return await _awaited(await self._in_thread(running, call) if attempt.in_thread else call())

    async def _prepared(self, running: Running) -> Callable[[], Any]:
        """Returns the call of the handler; a payload is read in a thread, as the loop must not wait for it."""
        prepared = running.attempt.prepared
        in_thread = running.attempt.in_thread or running.attempt.may_wait
        return await self._in_thread(running, prepared) if in_thread else prepared()

    async def _run_last_hooks(self, running: Running, result: bytes | BaseException) -> None:
        if os.getpid() != self.pid:
            return  # a handler forked this process
        running.result = result
        interrupted = is_error(result) and is_a(result, (WorkerStops, LoopBlocked))
        outcome = hooks.INTERRUPTED if interrupted else running.attempt.judged(result)
        for hook in hooks.HOOKS.at_end(outcome):
            with hook.guarded():
                await self._call_hook(running, hook, current_task(), outcome)
            if running.closing:
                return

    async def _call_hook(self, running: Running, hook: Hook, *arguments: object) -> None:
        """Runs a hook: a coroutine on the loop, a plain function, which may wait, in the thread of the attempt."""
        if hook.is_async:
            await hook.function(*arguments)
        else:
            context = copy_context()
            await self._in_thread(running, context.run, hook.function, *arguments)
            hooks.adopt(context)

    async def _in_thread(self, running: Running, function: Callable[..., Any], *arguments: object) -> Any:
        """Runs a function that waits in a thread; the attempt ends when the function does."""
        call = partial(running.call_in_thread, running.interruption, function, *arguments)
        future = asyncio.wrap_future(self._threads_for(running).submit(copy_context().run, call), loop=self.loop)
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(future)
        value, running.raised = future.result()
        if running.raised is not None:
            raise running.raised
        return value

    def _threads_for(self, running: Running) -> ThreadPoolExecutor:
        """Returns the threads for an attempt: with hooks only one, which its hooks and its handler share."""
        if not self.attempts.hooked:
            return self._threads
        if running.thread_of_hooks is None:
            running.thread_of_hooks = self._idle_threads.pop() if self._idle_threads else ThreadPoolExecutor(1, THREADS)
        return running.thread_of_hooks

    def _finish(self, running: Running, result: bytes | BaseException) -> None:
        """Sends how an attempt ended, or ends this process: otherwise the worker would extend its lease for ever."""
        try:
            self._send_end(running, result)
        except BaseException:
            log.exception("an outcome cannot be sent")
            os._exit(1)

    def _send_end(self, running: Running, result: bytes | BaseException) -> None:
        attempt = running.attempt
        running.ended = True
        running.result = None
        if running.timer is not None:
            running.timer.cancel()
        number = attempt.assignment.number
        if type(result) is WorkerStops:
            self._post((ipc.STOPPED, number))
        elif type(result) is LoopBlocked:
            self._post((ipc.FREED, number))
            self.attempts.report_leftovers(
                attempt.name, "work cut off because it blocked the event loop", logging.INFO, ends=True
            )
        else:
            if isinstance(result, BaseException):
                self._doubt_failure()
            self._post((ipc.OUTCOME, *attempt.ended(result)))
            if running.cut_off:
                # Its work is half done: an import, a lock, a message on a pooled database connection.
                what = "work cut off in a thread"
                self.attempts.report_leftovers(attempt.name, what, logging.INFO, ends=True)
        attempt.recorder.ended = True
        if running.thread_of_hooks is not None:
            self._idle_threads.append(running.thread_of_hooks)
        self._unchecked[attempt.name] = None
        self.loop.restore_settings()
        self._end_children(running)
        self._listen()
        del self.running[number]  # at the end: until then it is known as one that nothing may interrupt
        self._rest_if_idle()

    def _doubt_failure(self) -> None:
        """Ends this process when an attempt fails and another may have caused it: all of them run again, and apart."""
        beside_others = len(self.running) > 1 or self._unchecked
        if beside_others and any(_lower(now, before) for now, before in zip(limits(), self._limits, strict=True)):
            log.error("a handler changed the resource limits of its process: the other tasks there run again")
            self._flush()
            os._exit(1)

    # --- leftovers of attempts ---

    def _end_children(self, running: Running) -> None:
        """Cancels the tasks that a handler left running; those that ignore it are closed a moment later."""
        if left := self.loop.leave_calls(running.on_loop, running.interruption is not None):
            self.attempts.report_leftovers(running.attempt.name, left, logging.WARNING, ends=True)
        elif running.on_loop.calls:
            self.leftovers.report_calls(running.attempt.name)
        if not running.on_loop.tasks:
            return
        self._left.add(running)
        for child in running.on_loop.tasks:
            child.cancel()
        self.loop.call_later(min(_CANCEL_WAIT, self.kill_grace / 2), self._close_children, running)

    def _close_children(self, running: Running) -> None:
        names = [_name(child) for child in list(running.on_loop.tasks) if not _close(child)]
        if names:
            left = f"coroutines that ignore being cancelled ({', '.join(sorted(names))})"
            self.attempts.report_leftovers(running.attempt.name, left, logging.WARNING, ends=True)
        self._left.discard(running)
        self._rest_if_idle()

    def _rest_if_idle(self) -> None:
        if self.running or self._left:
            return
        self.watch.rest()
        if self._idle_check is None:
            self._idle_check = self.loop.call_later(_IDLE, self._check)

    def _check(self) -> None:
        """Undoes the handlers' changes to this process, once none runs."""
        self._idle_check = None
        if self.running or self._begun or not self._unchecked:
            return
        names = " or ".join(sorted(self._unchecked)[:10])
        self._unchecked.clear()
        if not self.leftovers.fit_after(names, 1_000_000):
            self._listening = True  # begins no more tasks: the worker takes them back
            self.loop.remove_reader(self.ends.start_tokens)

    # --- interruption ---

    def _on_command(self, command: str, number: int) -> None:
        if command == ipc.PING:
            self._post((ipc.PONG,))
            return
        if command == ipc.STOP:
            for running in list(self.running.values()):
                running.interrupt(WorkerStops("the worker stops"))
            return
        if (one := self.running.get(number)) is None:
            return
        if command == ipc.ABANDON:
            self._interrupt(one, WorkerStops("its lease was lost"))
        elif not one.attempt.cancelled:
            one.attempt.cancelled = True
            self._interrupt(one, TaskCancelled("the task was cancelled while it ran"))

    def _on_time_limit(self, running: Running) -> None:
        """Stops an attempt; one that a neighbour kept from the loop gets that time back, once."""
        blocked = self.watch.blocked() - running.blocked_before
        if blocked > LATE and not running.extended:
            running.extended = True
            running.timer = self.loop.call_later(blocked, self._on_time_limit, running)
            return
        limit = running.attempt.assignment.limit
        self._interrupt(running, TimeLimitExceeded(f"the task exceeded its time limit of {limit:g} s"))

    def _interrupt(self, running: Running, error: BaseException) -> None:
        running.interrupt(error)
        self.loop.call_later(self.kill_grace, self._force, running)

    def _force(self, running: Running) -> None:
        """Ends an attempt that ignores its interruption: closes its coroutine, or has the worker end this process."""
        if running.ended or running.interruption is None:
            return
        running.closing = True
        if running.thread or running.task is None or not running.context.run(_close, running.task):
            self._post((ipc.STUCK, running.attempt.assignment.number))
            return
        self._finish(running, running.interruption if running.result is None else running.result)

    # --- a blocked loop ---

    def _on_blocked(self, blockage: Blockage) -> None:
        attempt = self._blocking()
        number, handler = (attempt.assignment.number, attempt.name) if attempt else (0, "")
        self._send((ipc.BLOCKED, number, handler, blockage.seconds, blockage.where, blockage.stack))

    def _on_stuck_loop(self) -> None:
        attempt = self._blocking()
        self._send((ipc.STUCK, attempt.assignment.number if attempt else 0))

    def _may_interrupt(self, task: asyncio.Task[Any]) -> bool:
        return not any(running.task is task and running.ending for running in self.running.values())

    def _blocking(self) -> Attempt | None:
        """Returns the attempt that the loop is in, or that has left a task running which it is in."""
        task = asyncio.current_task(self.loop)
        for running in [*self.running.values(), *self._left]:
            if task is not None and (running.task is task or task in running.on_loop.tasks):
                return running.attempt
        return None

    # --- events ---

    def _post(self, value: tuple[Any, ...]) -> None:
        """Sends an event with the others of this turn of the loop."""
        if not self._outbox:
            self.loop.call_soon(self._flush)
        self._outbox.append(ipc.frame(value))

    def _flush(self) -> None:
        data, self._outbox = b"".join(self._outbox), []
        self._write(data)

    def _send(self, value: tuple[Any, ...]) -> None:
        """Sends an event at once, from any thread."""
        self._write(ipc.frame(value))

    def _write(self, data: bytes) -> None:
        with self._sending:
            ipc.write(self.ends.events, data)

    def _on_fork(self) -> None:
        """Closes the pipes of the executor in a process that a handler forked."""
        for running in self.running.values():
            running.attempt.recorder.mute()
        self.attempts.spans.mute()
        for fd in (self.ends.tasks, self.ends.start_tokens, self.ends.events):
            with contextlib.suppress(OSError):
                os.close(fd)


async def _awaited(value: Any) -> Any:
    return await value if hasattr(type(value), "__await__") else value


def _lower(now: tuple[int, int], before: tuple[int, int]) -> bool:
    """Returns whether a resource limit is lower than before; the infinite one is -1."""
    return now[0] != -1 and (before[0] == -1 or now[0] < before[0])


def _judged(error: BaseException, interruption: BaseException | None) -> BaseException:
    """Returns the error that ended an attempt: its interruption where the error only carried it out."""
    if isinstance(interruption, WorkerStops):
        return interruption  # whatever the handler made of it: the attempt runs again at no cost
    if blocked := next((each for each in leaves(error) if type(each) is LoopBlocked), None):
        return blocked
    if interruption is None or not is_a(decisive(error), (asyncio.CancelledError, type(interruption))):
        return error
    return interruption.with_traceback(traceback_of(error))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Makes a thread raise an exception at its next bytecode; None takes one back that was not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error) if error else ctypes.c_void_p(None)
    )


def _close(task: asyncio.Task[Any]) -> bool:
    """Closes the coroutine of a task that ignores being cancelled; returns whether it has ended."""
    coroutine = task.get_coro()
    try:
        coroutine.close()
    except BaseException:  # it awaits something again, or raises any error
        return False
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    task.cancel()
    return True


def _name(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", "?"))
