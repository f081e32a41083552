"""What the router of a system with several partitions tells an app about a request, in its environment."""

from __future__ import annotations

PART = "firmq.part"
"""0 or absent, or the place among the partitions that the request is sent to: it is logged and audited by the
first of them only."""
CALLER = "firmq.caller"
"""The `ApiKey` of a request that the router has let in and counted, or None without one; or why it is refused."""
POSITIONS = "firmq.positions"
"""A list that gets the cursor behind each item of the page."""
