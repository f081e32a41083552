"""Shows the job that runs as started, as RQ does, once it has run for a moment; shorter ones need no round trip."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from redis.exceptions import RedisError

log = logging.getLogger(__name__)

MOMENT = 0.02
"""Seconds; a job is shown at the latest after twice as long."""
UNCERTAIN = "?"
"""In place of an execution: Redis did not answer when it was written."""
_ROUNDS = 50
"""Rounds without a job after which the thread waits for one."""


class StartedJobs:
    """Watches the one job that its process runs, in a thread.

    `end` waits for a write that has begun: what is written at the end of a job follows what is written here.
    """

    def __init__(self) -> None:
        self._show: Callable[[], str] | None = None
        self._execution = ""
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._asleep = False

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="rq-started-jobs", daemon=True).start()

    def begin(self, show: Callable[[], str]) -> None:
        """Notes that a job has begun; `show` writes it to RQ's registries and returns the name of its execution."""
        self._show = show
        if self._asleep:
            self._wake.set()

    def show(self) -> None:
        """Shows the job that runs at once, if there is one."""
        if self._show is not None:
            self._write(self._show)

    def end(self) -> str:
        """Returns the execution that was written for the job, "" for none; watches the job no more."""
        self._show = None
        with self._writing:
            execution, self._execution = self._execution, ""
        return execution

    def _run(self) -> None:
        seen, idle = None, 0
        while True:
            if seen is not None and seen is self._show:
                self._write(seen)
            seen = self._show
            idle = 0 if seen else idle + 1
            if idle > _ROUNDS:
                self._rest()
            time.sleep(MOMENT)

    def _rest(self) -> None:
        self._asleep = True
        if self._show is None:
            self._wake.wait()
        self._asleep = False
        self._wake.clear()

    def _write(self, show: Callable[[], str]) -> None:
        with self._writing:
            if self._show is not show or self._execution:
                return
            try:
                self._execution = show()
            except (RedisError, OSError) as error:
                log.warning("a running job of an RQ program is not shown as started: %s", error)
                self._execution = UNCERTAIN
