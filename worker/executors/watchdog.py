"""A small process that ends the executors when their worker cannot: it was killed, or hangs past its leases.

The worker sends it repeatedly until when each executor may live: a little before the lease of its running task can end
in Redis. A worker that is stopped, swapped out or stuck sends nothing, so its executors end, with all that their
handlers started, before the second run begins.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable

from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.executors import process_tree
from firmq.worker.executors.process import ExecutorProcess

log = logging.getLogger(__name__)

_YOUNGEST = 0.75
"""The share of its lease that a task has left, at least, when it is claimed: see `RedisSession.accept`."""
_EARLY = 0.05
"""The share of a lease before its end at which the watchdog acts: after the worker, whose margin is larger."""


_NO_ROOM = 2.0
"""Seconds until the next try after the system ran out of files or processes."""
_END_WITHIN = 1.0


class Watchdog:
    """The worker's side of it. Linux only: elsewhere nothing is started."""

    def __init__(self, lease: float, margin: float) -> None:
        """`lease` is in seconds, and so is `margin`: how much of it must be left for the worker to trust it.

        A lease may be extended when no more than the margin is left, and the watchdog must be informed in time.
        """
        self.lease = lease
        self.interval = min(lease / 6, (margin - _EARLY * lease) / 2)
        self._process: subprocess.Popen[bytes] | None = None
        self._beats = -1
        self._next_beat = 0.0

    def check_soon(self) -> None:
        """Makes the next beat due, for an executor that the watchdog does not know."""
        self._next_beat = 0.0

    def beat(self, now: float, executors: Iterable[ExecutorProcess], ready: Iterable[ClaimedTask]) -> None:
        """Sends the watchdog until when each executor may live; restarts it when it has ended."""
        if now < self._next_beat or sys.platform != "linux":
            return
        self._next_beat = now + self.interval
        if self._process is not None and self._process.poll() is not None:
            log.error("watchdog ended (status %d), restarting it", self._process.poll())
            self.close()
        leases = {
            executor: [claimed.lease_until for claimed in executor.assigned.values() if executor.killed_because is None]
            for executor in executors
        }
        # The next task is held already, by any of them or by none yet, or will be claimed.
        next_lease = min(
            [
                now + _YOUNGEST * self.lease,
                *(claimed.lease_until for claimed in ready),
                *itertools.chain(*leases.values()),
            ]
        )
        until = {executor: min(own, default=next_lease) - _EARLY * self.lease for executor, own in leases.items()}
        words = (":".join(map(str, (*executor.identity, round(end, 3)))) for executor, end in until.items())
        try:
            self._write((" ".join(words) + "\n").encode())
        except OSError as error:
            log.error("watchdog unreachable (%s), restarting it", error)
            self.close()
            self._next_beat = now + min(_NO_ROOM, self.interval)
        extended_at = time.monotonic()
        for executor, end in until.items():
            if extended_at > executor.trusted_until:
                executor.untrusted_at = extended_at  # this may have come too late
            executor.trusted_until = end

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
        """Ends the watchdog; remaining executors are left to the worker."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_WITHIN)
            self._process = None
            os.close(self._beats)
