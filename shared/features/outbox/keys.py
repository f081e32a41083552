"""The keys of the outbox."""

from __future__ import annotations

from collections.abc import Sequence

from firmq.shared.redis.keys import KeySpace


class OutboxKeys(KeySpace):
    """The keys of the outbox."""

    def receipt(self, task_id: str) -> str:
        """string, owner: submit_outbox; a year, then IDEMPOTENCY_TTL once settled. The task that a row became."""
        return f"{self.prefix}firmq:receipt:{task_id}"

    def of_id(self, given: str) -> Sequence[str]:
        return (self.receipt(given),)
