"""The running housekeepers and relays, by their last report.

Workers announce much more about themselves (`workers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firmq.shared.redis.client import keys_of, text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

EVERY = 10.0
"""Seconds between reports of a housekeeper or a relay."""
KEPT_US = 7 * 24 * 3_600_000_000
LIVE = 3 * EVERY
"""Seconds of silence after which it counts as stopped."""
RELAY = "relay"
WITHOUT_LOCKS = " without locks"
"""Follows the name of a housekeeper that takes none."""


class Presence:
    """Reports that a part runs, and reads which parts do."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.key = keys_of(scripts.redis).PRESENCE

    def report(self, name: str) -> None:
        """Records that it runs. Raises StoreUnavailable."""
        with translated(), self.scripts.redis.pipeline(transaction=False) as pipeline:
            now = self.scripts.now_us()
            pipeline.zadd(self.key, {name: now})
            pipeline.zremrangebyscore(self.key, "-inf", now - KEPT_US)
            pipeline.execute()

    def withdraw(self, name: str) -> None:
        """Removes a part that shuts down cleanly. Raises StoreUnavailable."""
        with translated():
            self.scripts.redis.zrem(self.key, name)

    def silences(self) -> dict[str, float]:
        """Returns for how many seconds each part was silent that ran in the last week; none for an unreadable key."""
        from redis.exceptions import ResponseError  # on first use: see `shared/redis/client.py`

        try:
            found: Any = self.scripts.redis.zrange(self.key, 0, -1, withscores=True)
        except ResponseError:
            return {}
        now = self.scripts.now_us()
        return {text(name): max(0.0, now - at) / 1e6 for name, at in found}
