"""The keys of bulk actions."""

from __future__ import annotations

from collections.abc import Sequence

from firmq.shared.redis.keys import Key, KeySpace


class BulkKeys(KeySpace):
    """The keys of bulk actions."""

    BULKS = Key("firmq:bulks", "zset")
    """zset, owner: `BulkActions`; the latest 100. Bulk actions, by the time at which they began."""

    OPEN_BULKS = Key("firmq:bulks:open", "set")
    """set, owner: `BulkActions`. Unfinished bulk actions, which the job `bulk` carries out."""

    def bulk(self, action_id: str) -> str:
        """hash, owner: `BulkActions` and its scripts; as long as it is in `BULKS`. Action, rate and progress."""
        return f"{self.prefix}firmq:bulk:{action_id}"

    FOLLOWED_BULKS = Key("firmq:bulks:followed", "set")
    """set, owner: `BulkActions`. Bulk actions with requeued tasks that have not ended yet."""

    def bulk_followed(self, action_id: str) -> str:
        """hash, owner: `BulkActions`; until its tasks have ended. Requeued tasks, each with its fingerprint."""
        return f"{self.prefix}firmq:bulk-followed:{action_id}"

    def bulk_ids(self, action_id: str) -> str:
        """zset, owner: `BulkActions`; as long as its action. The selected tasks that are still to be done."""
        return f"{self.prefix}firmq:bulk-ids:{action_id}"

    def of_id(self, given: str) -> Sequence[str]:
        return (self.bulk(given),)
