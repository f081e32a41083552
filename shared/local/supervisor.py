"""Starts services together, restarts those that die, and stops them in order.

Each service is owned by one coroutine, `_Runner.live`, which alone starts, restarts and stops its process. The
supervisor only decides when each group stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from shared.errors import TaskQueueError
from shared.local.processes import describe_exit, dies_with_us
from shared.local.service_log import LineCutter, ServiceLog

_POLL = 0.05
_SLOW_POLL = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SUPERVISOR = "taskqueue"
"""The name of the supervisor in the log."""


class ServiceDidNotStart(TaskQueueError):
    """Raised when a service does not become ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service: its command, its readiness URL and its grace period."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    ready_url: str
    grace: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The intervals and time-outs of the supervisor."""

    # Between log lines about services that are not ready yet.
    remind: timedelta = timedelta(seconds=10)
    immediate_restarts: int = 3
    first_restart: timedelta = timedelta(seconds=1)
    last_restart: timedelta = timedelta(seconds=30)
    # A service that ran this long does not fail at every start, so its restarts are forgotten.
    settled: timedelta = timedelta(seconds=60)
    # Between a service's grace and SIGKILL: reminders by SIGTERM, which mean "stop at once".
    nudge: timedelta = timedelta(milliseconds=500)
    nudges: int = 10
    watch: timedelta = timedelta(seconds=1)


class Supervisor:
    """Runs groups of services until a signal; the groups stop one after the other, in the given order.

    `watch` is called about once a second while the services run, and the line it returns is logged. `on_ready` is
    called when all services are ready for the first time.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Service]],
        log: ServiceLog,
        *,
        on_ready: Callable[[], None] = lambda: None,
        watch: Callable[[], str | None] = lambda: None,
        timing: Timing | None = None,
    ) -> None:
        self._log = log
        self._on_ready = on_ready
        self._watch = watch
        self._timing = timing or Timing()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._groups = [[_Runner(service, log, self._timing, self._hurry) for service in group] for group in groups]

    def run(self) -> None:
        """Runs the services; returns after a signal, when all have ended.

        Raises ServiceDidNotStart if one could not start; the others have ended by then.
        """
        asyncio.run(self._run())

    @property
    def _runners(self) -> list[_Runner]:
        return [runner for group in self._groups for runner in group]

    async def _run(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        lives = {runner: asyncio.create_task(runner.live()) for runner in self._runners}
        try:
            await self._until_stopped([*lives.values(), asyncio.create_task(self._look_after())])
        finally:
            await self._stop_in_order(lives)

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            self._log.line(SUPERVISOR, "stopping: running tasks may finish; press Ctrl-C again to give them back")
            self._stop.set()
        elif not self._hurry.is_set():
            self._log.line(SUPERVISOR, "stopping at once: running tasks are given back")
            self._hurry.set()

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Waits for the request to stop; raises the error of a task that ends earlier, as it can only have failed."""
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()

    async def _look_after(self) -> None:
        await self._await_ready()
        self._on_ready()
        while True:
            await asyncio.sleep(self._timing.watch.total_seconds())
            if news := self._watch():
                self._log.line(SUPERVISOR, news)

    async def _await_ready(self) -> None:
        """Waits until all services are ready; one that dies before that ends `live` with an error."""
        started_at = asyncio.get_running_loop().time()
        for runner in self._runners:
            while not await _within(runner.ready.wait(), self._timing.remind):
                waited = asyncio.get_running_loop().time() - started_at
                self._log.line(runner.service.name, f"runs but is not ready after {waited:.0f} s; still waiting")

    async def _stop_in_order(self, lives: Mapping[_Runner, asyncio.Task[None]]) -> None:
        for group in self._groups:
            for runner in group:
                runner.stop.set()
            # An error has been raised already; only their end matters here.
            await asyncio.gather(*(lives[runner] for runner in group), return_exceptions=True)


class _Runner:
    """One service from its first start to its end."""

    def __init__(self, service: Service, log: ServiceLog, timing: Timing, hurry: asyncio.Event) -> None:
        self.service = service
        self.ready = asyncio.Event()
        self.stop = asyncio.Event()
        self._hurry = hurry
        self._log = log
        self._timing = timing
        self._restarts = 0
        self._worked = False

    async def live(self) -> None:
        """Runs the service until `stop` is set. Raises ServiceDidNotStart if it dies before it was ready once."""
        while not self.stop.is_set():
            status = await self._run_once()
            if self.stop.is_set():
                return
            if not self.ready.is_set():
                raise ServiceDidNotStart(self._last_words(status))
            await self._pause(status, asked=status == 0 and self._worked)

    async def _run_once(self) -> int:
        started_at = asyncio.get_running_loop().time()
        self._worked = False
        process = self._spawn()
        companions = [asyncio.create_task(self._copy_output(process)), asyncio.create_task(self._await_ready())]
        try:
            await _within(_end_of(process), unless=self.stop)
            if self.stop.is_set():
                await self._shut_down(process)
            self._forget_restarts_after(asyncio.get_running_loop().time() - started_at)
        finally:
            _kill_group(process)
            await self._end(companions)
        return process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.service.argv,
                env=self.service.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops the services in order
                preexec_fn=dies_with_us(),
            )
        except OSError as error:
            raise ServiceDidNotStart(f"{self.service.name} cannot be started: {error}") from error

    async def _shut_down(self, process: subprocess.Popen[bytes]) -> None:
        """Sends SIGTERM, repeats it after the grace period, then sends SIGKILL."""
        process.terminate()
        if await _within(_end_of(process), self.service.grace, unless=self._hurry):
            return
        # More than once, because signals that arrive together are merged.
        for _ in range(self._timing.nudges):
            process.terminate()
            if await _within(_end_of(process), self._timing.nudge):
                return
        self._log.line(self.service.name, "did not stop in time and is killed")

    async def _pause(self, status: int, asked: bool) -> None:
        """Waits before a restart: not before the first ones, then with growing pauses.

        A service that was ready and ends with status 0 was drained on purpose, for example from the dashboard; such a
        restart does not count.
        """
        delay = self._timing.first_restart if asked else self._delay()
        what = "ended in order, on request" if asked else describe_exit(status)
        when = f"in {delay.total_seconds():g} s" if delay else "now"
        self._log.line(self.service.name, f"{what}; starting it again {when}")
        await _within(self.stop.wait(), delay)
        if not asked:
            self._restarts += 1

    def _delay(self) -> timedelta:
        late = self._restarts - self._timing.immediate_restarts
        if late < 0:
            return timedelta()
        # After 20 doublings the pause is at its maximum.
        return min(self._timing.first_restart * (1 << min(late, 20)), self._timing.last_restart)

    def _forget_restarts_after(self, seconds: float) -> None:
        if seconds >= self._timing.settled.total_seconds():
            self._restarts = 0

    async def _await_ready(self) -> None:
        pause = _POLL
        while not await _answers_ok(self.service.ready_url):
            await asyncio.sleep(pause)
            pause = min(1.1 * pause, _SLOW_POLL)  # each probe may write a line to the log
        if self.ready.is_set():
            self._log.line(self.service.name, "is ready again")
        self._worked = True
        self.ready.set()

    async def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, process.stdout)
        cutter = LineCutter()
        try:
            while data := await reader.read(65536):
                self._write(cutter.feed(data))
        finally:
            self._write(cutter.rest())
            transport.close()

    def _write(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._log.line(self.service.name, line)

    async def _end(self, companions: Sequence[asyncio.Task[None]]) -> None:
        """Reads the remaining output, without waiting for other processes that hold the pipe open."""
        output, probe = companions
        probe.cancel()
        await asyncio.wait([output], timeout=1)
        output.cancel()
        await asyncio.gather(*companions, return_exceptions=True)

    def _last_words(self, status: int) -> str:
        head = f"{self.service.name} {describe_exit(status)} before it was ready; its last lines:"
        return "\n  ".join([head, *self._log.last_lines(self.service.name)])


async def _end_of(process: subprocess.Popen[bytes]) -> None:
    """Waits for the end of a process: by a pidfd on Linux, by polling elsewhere."""
    with suppress(AttributeError, OSError):
        await _readable(os.pidfd_open(process.pid))
    while process.poll() is None:
        await asyncio.sleep(_POLL)


async def _readable(descriptor: int) -> None:
    """Waits until a descriptor is readable, and closes it."""
    said = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, said.set)
    try:
        await said.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def _within(
    happening: Coroutine[Any, Any, object], limit: timedelta | None = None, *, unless: asyncio.Event | None = None
) -> bool:
    """Returns whether something happens before the limit has passed or an event is set."""
    awaited = asyncio.create_task(happening)
    waiting: set[asyncio.Task[Any]] = {awaited}
    if unless is not None:
        waiting.add(asyncio.create_task(unless.wait()))
    done, pending = await asyncio.wait(
        waiting, timeout=limit.total_seconds() if limit is not None else None, return_when=asyncio.FIRST_COMPLETED
    )
    for task in pending:
        task.cancel()
    return awaited in done


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the rest of a service: the process itself if it did not stop, and children that outlived it."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


async def _answers_ok(url: str) -> bool:
    """Returns whether a GET is answered with status 200 in time."""
    parts = urlsplit(url)
    request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(request.encode())
                status_line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return False
    return status_line.split()[1:2] == [b"200"]
