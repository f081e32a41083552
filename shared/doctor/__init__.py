"""Looks at a running system the way an experienced operator would, and says in words what to change.

`python -m shared.doctor` prints it; the gateway shows it at `/health/detail`. It only reads.
"""

from shared.doctor.examination import examine
from shared.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
