"""`python -m tests.support.failing_worker PART`: a worker of which one part stops for good at SIGUSR1.

Its patience is short, so that a test need not wait half a minute to see what is said about it.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from firmq.worker import heartbeat
from firmq.worker.engine import liveness, notifications
from firmq.worker.engine.loop import Engine
from firmq.worker.heartbeat import Heartbeat
from firmq.worker.main import main

PARTS: dict[str, tuple[type, str]] = {
    "loop": (Engine, "_tick"),
    "claiming": (Engine, "_claim_sizes"),
    "heartbeat": (Heartbeat, "beat"),
}


def _stop(*_: object) -> None:
    """What a part does that has got stuck."""
    time.sleep(3600)


def break_at_signal(part: str) -> None:
    owner, name = PARTS[part]
    sound = getattr(owner, name)
    stop = (lambda *_: {}) if part == "claiming" else _stop
    broken: list[bool] = []

    def method(self: Any, *arguments: Any) -> Any:
        return stop(self) if broken else sound(self, *arguments)

    setattr(owner, name, method)
    signal.signal(signal.SIGUSR1, lambda *_: broken.append(True))


if __name__ == "__main__":
    liveness.STILL = 3.0
    notifications.PATIENCE = 1.0
    vars(heartbeat).update(HEARTBEAT=0.5, BUSY_HEARTBEAT=0.5)
    break_at_signal(sys.argv[1])
    raise SystemExit(main())
