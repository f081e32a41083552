"""Whether what a script wrote is in Redis' append-only file, where it survives kill -9 of the server.

Under `appendfsync everysec` Redis postpones the write itself, not only the fsync, while the previous fsync is under
way, for up to two seconds, and answers all the same. What it acknowledged meanwhile dies with the process.

A script that has to be sure therefore asks at its end whether an fsync is under way (`_confirm.lua`, 3 us). If not,
Redis writes its file before it sends the reply. Otherwise the file has to grow by what is in the buffer. WAITAOF would
wait for the next fsync (100 ms in Valkey 9.1), and `appendfsync always` makes every write of every part wait for the
disk.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from redis import Redis

WRITTEN_WITHIN = 1.5
"""Seconds that an answer waits for a slow disk: the gateway promises one within two seconds."""
_PAUSES = (0.002, 0.05)


def await_write(redis: Redis, server: int) -> None:
    """Returns once what is in Redis' memory is in its append-only file, if it keeps one.

    `server` is `rdb_last_save_time` of the one that was written to. Raises StoreRefused when the disk is too slow,
    StoreUnavailable when Redis was restarted meanwhile.
    """
    first = _State.look(redis, server)
    until, pause = time.monotonic() + WRITTEN_WITHIN, _PAUSES[0]
    while time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])
        now = _State.look(redis, server)
        if now.base != first.base:
            first = now  # the file was rewritten, and is shorter now
        elif now.size >= first.size + first.buffered:
            return
    raise StoreRefused(
        f"it is stored, but Redis has not written it to its append-only file within {WRITTEN_WITHIN:g} s: its disk is "
        "too slow, and it could get lost"
    )


class _State(NamedTuple):
    """The bytes of the file: of what it was rewritten to, of all that is written, and still to be written."""

    base: int
    size: int
    buffered: int

    @classmethod
    def look(cls, redis: Redis, server: int) -> _State:
        """Raises StoreUnavailable when it is not that server any more."""
        info = redis.info("persistence")
        if info["rdb_last_save_time"] != server:
            raise StoreUnavailable("Redis was restarted before it had written to its append-only file")
        return cls(*(info.get(name, 0) for name in ("aof_base_size", "aof_current_size", "aof_buffer_length")))
