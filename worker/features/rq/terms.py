"""The settings of a worker that RQ's command line starts, from the options of `rq worker`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "FIRMQ_RQ_TERMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one worker. The defaults are the same as for `firmq worker`."""

    burst: bool = False
    """Whether it ends when the queues are empty."""
    max_jobs: int | None = None
    max_idle_time: float | None = None
    """Seconds without a job after which it ends."""
    scheduler: bool = True
    """Whether it enqueues jobs whose scheduled time has come."""
    strategy: str = "default"
    """The order of the queues: `default` is as they are named, `round_robin` or `random`."""
    report_to: int | None = None
    """A file descriptor that gets the number of adopted jobs at the end."""

    @property
    def ends(self) -> bool:
        return self.burst or self.max_jobs is not None or self.max_idle_time is not None

    def as_variable(self) -> dict[str, str]:
        """Returns the environment variable that hands these terms to a worker."""
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def of_environment() -> Terms:
        """Returns the terms of this process; its children do not inherit them."""
        return Terms(**json.loads(os.environ.pop(VARIABLE, "{}")))
