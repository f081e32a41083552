"""What webhooks add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

from tests.support.receiver import SECRET

CHANGES = ("/tasks/x/redeliver",)
OPERATE = {"POST /tasks/{task_id}/redeliver"}
FEW = (("redeliver", ("id",)),)
SETTINGS = (("webhook_secrets", (SECRET,)),)
OPTIONS = (("webhook", {"url": "https://example.com/done", "events": ["completed"]}),)
