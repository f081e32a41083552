"""Examines a running system and reports required changes. It only reads.

`firmq doctor` prints the report; the gateway returns it at `/health/detail`.
"""

from firmq.shared.doctor.examination import examine
from firmq.shared.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
