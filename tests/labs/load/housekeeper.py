"""`python -m tests.labs.load.housekeeper`: a housekeeper for which a batch is old when its tasks are.

Else Redis would grow for a day: so long a batch stays on record at least. Everything else that is kept has a setting.
"""

from __future__ import annotations

from datetime import timedelta

from firmq.worker.housekeeping.jobs import ttl
from firmq.worker.housekeeping.main import main

RETENTION = timedelta(seconds=20)

if __name__ == "__main__":
    ttl.BATCH_AGE = RETENTION
    raise SystemExit(main())
