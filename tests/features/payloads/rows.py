"""What large payloads add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

JOBS = ("payloads",)
