"""What the router of a system with several partitions tells an app about a request, in its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmq.shared.domain.partition import split

PART = "firmq.part"
"""0 or absent, or the place among the partitions that the request is sent to: it is logged and audited by the
first of them only."""
CALLER = "firmq.caller"
"""The `ApiKey` of a request that the router has let in and counted, or None without one; or why it is refused."""
AUDITED = "firmq.audited"
"""Whether this part of a request is audited, where that does not follow from `PART`."""
POSITIONS = "firmq.positions"
"""A list that gets the cursor behind each item of the page."""
BULK_PART = "firmq.bulk_part"
"""The `BulkPart` of a bulk action that begins in several partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPart:
    """The part of a bulk action that one partition gets."""

    action_id: str
    """The id of the whole; the part's differs from it in the mark of the partition only."""
    number: int
    tasks: Mapping[int, int] = field(default_factory=dict)
    """How many tasks each partition has for it."""

    def share(self, amount: int) -> int:
        """Returns this partition's share of a rate or of a number of tasks."""
        return split(amount, self.tasks)[self.number]
