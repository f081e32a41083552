"""A bulk action that nobody can read does not vanish from the list: it is shown, with what a person can do."""

from __future__ import annotations

import pytest

from firmq.shared.features.bulk.keys import BulkKeys
from tests.integration.quarantine.scene import Scene
from tests.integration.quarantine.test_keys import put
from tests.integration.quarantine.test_lists import GARBAGE, WRONG, page, spoilt
from tests.support.keys import keys

__all__ = ["spoilt"]

BULK = BulkKeys.beside(keys)


@pytest.mark.parametrize("field", ["verb", "what", "by", "rate", "state", "total", "done", "begun_at", "ended_at"])
def test_a_bulk_action_with_a_damaged_field_is_shown(spoilt: Scene, field: str) -> None:
    action = spoilt.names["action_id"]
    for garbage in GARBAGE:
        spoilt.put_back()
        spoilt.redis.hset(BULK.bulk(action), field, garbage)
        assert action in page(spoilt, "/bulk"), garbage
        page(spoilt, "/dead-letters")
    if field in ("verb", "rate", "total", "begun_at"):
        assert "start a new action" in page(spoilt, "/bulk")


@pytest.mark.parametrize("kind", [*WRONG, "gone"])
def test_a_bulk_action_without_its_record_is_shown(spoilt: Scene, kind: str) -> None:
    key = BULK.bulk(spoilt.names["action_id"])
    spoilt.redis.delete(key)
    if kind != "gone":
        put(spoilt.redis, key, kind)
    spoilt.dashboard.test_client().get("/bulk")  # a key of another type is set aside by the first who asks
    assert "start a new action" in page(spoilt, "/bulk")
