"""Starts services together, restarts those that die, and stops them in order.

The main thread alone starts, watches and stops processes. Two more threads per service copy its output and wait until
it is ready. Any thread may send a signal to a service.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from firmq.shared.child_processes import describe_exit, dies_with_us
from firmq.shared.errors import FirmqError
from firmq.shared.http.healthcheck import status as readiness

SUPERVISOR = "firmq"
"""The name of the supervisor in the log."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK = 0.1
_WATCH = 1.0
_IMMEDIATE_RESTARTS = 3
_LONGEST_PAUSE = 30.0
_SETTLED = 60.0
"""Seconds of work after which the count of a service's restarts is reset."""
_LONGEST_LINE = 64 * 1024
_LINES_REMEMBERED = 20
_COLOURS = ("36", "33", "35", "32", "34", "31")


class ServiceDidNotStart(FirmqError):
    """Raised when a service does not become ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service: its command, the address of its readiness probe, and its grace period in seconds."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    host: str
    port: int
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Intervals in seconds. `nudge` is that between reminders by SIGTERM, which mean "stop at once"."""

    remind: float = 10.0
    first_restart: float = 1.0
    nudge: float = 0.5
    nudges: int = 10


class ServiceLog:
    """Merges the logs of all services: writes lines after aligned names.

    If the reader is gone (`firmq dev | head`, a closed terminal), it writes no more, so that services still stop in
    order.
    """

    def __init__(self, out: TextIO, names: Sequence[str]) -> None:
        self._out = out
        self._lock = threading.Lock()
        colours = itertools.cycle(_COLOURS if out.isatty() and not os.environ.get("NO_COLOR") else [""])
        width = max(map(len, names))
        self._prefixes = {name: _coloured(f"{name:<{width}} |", next(colours)) for name in names}

    def line(self, name: str, text: str) -> None:
        """Writes one line of a service."""
        self.write(f"{self._prefixes[name]} {text}\n")

    def write(self, text: str) -> None:
        """Writes text unchanged."""
        with self._lock, suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._out.write(text)
            self._out.flush()


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


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
        self._groups = [[_Runner(service, log, self._timing) for service in group] for group in groups]
        self._runners = [runner for group in self._groups for runner in group]
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._stopping = False
        self._hurry = False

    def signal(self, name: str, number: int) -> bool:
        """Sends a signal to a service and returns True; False while it is not ready, as it could not handle it.

        A service that waits to be started again is started now.
        """
        [runner] = [each for each in self._runners if each.service.name == name]
        return runner.signal(number)

    def run(self) -> None:
        """Runs the services; returns after a signal, when all have ended. Signals are ignored from then on.

        Raises ServiceDidNotStart if one could not start; the others have ended by then. Call it from the main thread.
        """
        for number in _SIGNALS:
            signal.signal(number, lambda number, frame: self._signals.put(number))
        try:
            if self._became_ready():
                self._on_ready()
                self._look_after()
        finally:
            self._stop_in_order()

    def _became_ready(self) -> bool:
        """Returns whether all services became ready before a signal came."""
        started_at = reminded_at = time.monotonic()
        while not self._signalled():
            self._tend()
            waiting = [runner for runner in self._runners if not runner.ready.is_set()]
            if not waiting:
                return True
            if time.monotonic() - reminded_at >= self._timing.remind:
                reminded_at = time.monotonic()
                for runner in waiting:
                    text = f"runs but is not ready after {reminded_at - started_at:.0f} s; still waiting"
                    self._log.line(runner.service.name, text)
        return False

    def _look_after(self) -> None:
        watched_at = time.monotonic()
        while not self._signalled():
            self._tend()
            if time.monotonic() - watched_at >= _WATCH:
                watched_at = time.monotonic()
                if event := self._watch():
                    self._log.line(SUPERVISOR, event)

    def _tend(self) -> None:
        for runner in self._runners:
            runner.tend()

    def _signalled(self) -> bool:
        """Waits for a moment, and returns whether a signal came."""
        try:
            self._signals.get(timeout=_TICK)
        except queue.Empty:
            return False
        if not self._stopping:
            self._log.line(SUPERVISOR, "stopping: running tasks may finish; press Ctrl-C again to requeue them")
        elif not self._hurry:
            self._log.line(SUPERVISOR, "stopping at once: running tasks are requeued")
        self._stopping, self._hurry = True, self._stopping
        return True

    def _stop_in_order(self) -> None:
        self._stopping = True
        for group in self._groups:
            for runner in group:
                runner.begin_stop()
            while any(runner.running for runner in group):
                for runner in group:
                    runner.continue_stop(at_once=self._hurry)
                self._signalled()
            for runner in group:
                runner.clean_up()


class _Runner:
    """One service: starts, restarts and stops its process."""

    def __init__(self, service: Service, log: ServiceLog, timing: Timing) -> None:
        self.service = service
        self.ready = threading.Event()
        """Set when it was ready for the first time."""
        self._log = log
        self._timing = timing
        self._process: subprocess.Popen[bytes] | None = None
        self._output = threading.Thread()
        self._last_lines = deque[str](maxlen=_LINES_REMEMBERED)
        self._started_at = 0.0
        self._worked = False
        """Whether the present process was ready."""
        self._restarts = 0
        self._due = 0.0
        """When the next step is due, a restart or a signal, in seconds of time.monotonic()."""
        self._nudges = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tend(self) -> None:
        """Starts the service when that is due. Raises ServiceDidNotStart if it died before it was ready once."""
        if self._process is None:
            if time.monotonic() >= self._due:
                self._start()
        elif (status := self._process.poll()) is not None:
            self.clean_up()
            if not self.ready.is_set():
                raise ServiceDidNotStart(self._last_words(status))
            self._plan_restart(status, asked=status == 0 and self._worked)

    def signal(self, number: int) -> bool:
        process = self._process
        if process is None:
            self._due = 0.0
            return True
        if not self._worked or process.poll() is not None:
            return False
        process.send_signal(number)
        return True

    def begin_stop(self) -> None:
        """Asks the service to stop."""
        if self._process is not None:
            self._process.terminate()
        self._due, self._nudges = time.monotonic() + self.service.grace, self._timing.nudges

    def continue_stop(self, *, at_once: bool) -> None:
        """Repeats SIGTERM after the grace period, or now; then sends SIGKILL."""
        if self._process is None or not self.running:
            return
        at_once = at_once and self._nudges == self._timing.nudges
        if not at_once and time.monotonic() < self._due:
            return
        if self._nudges:  # more than once, because signals that arrive together are merged
            self._process.terminate()
            self._due, self._nudges = time.monotonic() + self._timing.nudge, self._nudges - 1
        else:
            self._log.line(self.service.name, "did not stop in time and is killed")
            self._process.kill()
            self._process.wait()

    def clean_up(self) -> None:
        """Kills children that outlived the service, and reads the rest of its output."""
        if self._process is None:
            return
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._output.join(timeout=1)  # another process may hold the pipe open
        self._process = None

    def _start(self) -> None:
        try:
            process = subprocess.Popen(
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
        self._process, self._started_at, self._worked = process, time.monotonic(), False
        self._output = threading.Thread(target=self._copy_output, args=(process,), daemon=True)
        self._output.start()
        threading.Thread(target=self._await_ready, args=(process,), daemon=True).start()

    def _plan_restart(self, status: int, asked: bool) -> None:
        """Plans a restart: the first ones now, the next ones after growing pauses.

        A service that was ready and ends with status 0 was drained on purpose, for example from the dashboard; such a
        restart does not count.
        """
        if time.monotonic() - self._started_at >= _SETTLED:
            self._restarts = 0
        delay = self._timing.first_restart if asked else self._delay()
        what = "stopped cleanly, on request" if asked else describe_exit(status)
        self._log.line(self.service.name, f"{what}; starting it again {f'in {delay:g} s' if delay else 'now'}")
        self._restarts += not asked
        self._due = time.monotonic() + delay

    def _delay(self) -> float:
        late = self._restarts - _IMMEDIATE_RESTARTS
        return min(self._timing.first_restart * 2.0 ** min(late, 20), _LONGEST_PAUSE) if late >= 0 else 0.0

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        pause = 0.05
        while process.poll() is None:
            if self._answers():
                if self.ready.is_set():
                    self._log.line(self.service.name, "is ready again")
                self._worked = True
                self.ready.set()
                return
            time.sleep(pause)
            pause = min(1.1 * pause, 1.0)  # each probe may write a line to the log

    def _answers(self) -> bool:
        with suppress(OSError):
            return " 200" in (readiness(self.service.port, self.service.host) or "")
        return False

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout as output:  # type: ignore[union-attr]  # it is a pipe
            for line in iter(lambda: output.readline(_LONGEST_LINE), b""):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                self._last_lines.append(text)
                self._log.line(self.service.name, text)

    def _last_words(self, status: int) -> str:
        head = f"{self.service.name} {describe_exit(status)} before it was ready; its last lines:"
        return "\n  ".join([head, *self._last_lines])
