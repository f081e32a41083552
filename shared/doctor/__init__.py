"""Examines a running system and reports what to change. It only reads.

`python -m shared.doctor` prints the report; the gateway returns it at `/health/detail`.
"""

from shared.doctor.examination import examine
from shared.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
