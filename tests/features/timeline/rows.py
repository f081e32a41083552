"""What the timeline adds to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

PAGES = ("/timeline",)
