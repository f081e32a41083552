"""Examines a running system and reports what to change. It only reads.

`taskqueue doctor` prints the report; the gateway returns it at `/health/detail`.
"""

from taskqueue.shared.doctor.examination import examine
from taskqueue.shared.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
