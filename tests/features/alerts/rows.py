"""What alerts add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

import json

FEW = (
    (
        "alerts_write",
        ("", "", json.dumps({"alerts": dict.fromkeys(map(str, range(200)), "{}"), "messages": {"m": ""}})),
    ),
)
