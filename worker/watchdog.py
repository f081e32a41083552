"""A small process that ends the executors when their worker cannot: it was killed, or hangs past its leases.

The worker tells it again and again until when each executor may live: a little before the lease of what it runs can end
elsewhere. A worker that is stopped, swapped out or stuck tells nothing, so its executors end, with all that their
handlers started, before the second run begins.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable

from worker import process_tree
from worker.executor_process import ExecutorProcess
from worker.held import Held

log = logging.getLogger(__name__)

_INTERVAL = 1 / 6
"""The share of a lease between two beats: leases are extended after a third."""
_YOUNGEST = 0.75
"""The share of its lease that a task has left, at least, when it is claimed: see `Link.accept`."""
_EARLY = 0.05
"""The share of a lease before its end at which the watchdog acts: after the worker, whose margin is larger."""


class Watchdog:
    """The worker's side of it. Linux only: elsewhere nothing is started."""

    def __init__(self, lease: float) -> None:
        """`lease` is in seconds."""
        self.lease = lease
        self._process: subprocess.Popen[bytes] | None = None
        self._beats = -1
        self._next_beat = 0.0

    @property
    def pid(self) -> int:
        """Its process; 0 when there is none."""
        return self._process.pid if self._process else 0

    def look_soon(self) -> None:
        """Makes the next beat due: there is an executor that the watchdog does not know."""
        self._next_beat = 0.0

    def beat(self, now: float, executors: Iterable[ExecutorProcess], ready: Iterable[Held]) -> None:
        """Tells the watchdog until when each executor may live; starts another one when it is gone.

        What an executor begins until the next beat is among `ready`, or is not claimed yet.
        """
        if now < self._next_beat or sys.platform != "linux":
            return
        self._next_beat = now + _INTERVAL * self.lease
        if self._process is not None and self._process.poll() is not None:
            log.error("the watchdog of the executors has ended (status %d): another is started", self._process.poll())
            self.close()
        next_lease = min((held.lease_until for held in ready), default=now + _YOUNGEST * self.lease)
        words = []
        for executor in executors:
            leases = (held.lease_until for held in executor.assigned.values() if executor.killed_because is None)
            executor.trusted_until = min(leases, default=next_lease) - _EARLY * self.lease
            words.append(f"{executor.pid}:{executor.started}:{executor.trusted_until:.3f}")
        try:
            self._write((" ".join(words) + "\n").encode())
        except OSError as error:
            log.error("the watchdog of the executors cannot be reached (%s): another is started", error)
            self.close()
            self.look_soon()

    def _write(self, data: bytes) -> None:
        """Raises OSError when the watchdog has ended, or has read nothing for many minutes."""
        if self._process is None:
            self._start()
        os.write(self._beats, data)

    def _start(self) -> None:
        reader, self._beats = os.pipe()
        try:
            os.set_blocking(self._beats, False)
            # Without site-packages, the environment and the folder of the program on its path it needs little memory.
            program = [sys.executable, "-S", "-E", "-P", os.path.abspath(process_tree.__file__)]
            self._process = subprocess.Popen(
                program, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/"
            )
        except OSError:
            os.close(self._beats)
            raise
        finally:
            os.close(reader)

    def close(self) -> None:
        """Ends the watchdog; executors that are left are the worker's business again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            os.close(self._beats)
