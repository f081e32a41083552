"""Waits until a script's writes are in Redis' append-only file, where they survive kill -9 of the server.

Under `appendfsync everysec` Redis postpones the write itself, not only the fsync, while the previous fsync runs, for up
to two seconds, and still answers. Writes acknowledged meanwhile are lost with the process.

A script that must be durable therefore checks at its end whether an fsync is running (`_confirm.lua`, 3 us). If not,
Redis writes its file before it sends the reply. Otherwise the file has to grow by the size of the buffer. WAITAOF would
wait for the next fsync (100 ms in Valkey 9.1), and `appendfsync always` makes every write of every component wait for
the disk.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from firmq.shared.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from redis import Redis

WRITTEN_WITHIN = 1.5
"""Seconds to wait for a slow disk: the gateway guarantees an answer within two seconds."""
_PAUSES = (0.002, 0.05)


def await_write(redis: Redis, server: int) -> None:
    """Returns once the writes in Redis' memory are in its append-only file, if it keeps one.

    `server` is the `rdb_last_save_time` of the server that was written to. Raises StoreRefused when the disk is too
    slow, StoreUnavailable when Redis was restarted meanwhile.
    """
    first = _State.look(redis, server)
    until, pause = time.monotonic() + WRITTEN_WITHIN, _PAUSES[0]
    while time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])
        now = _State.look(redis, server)
        if now.base != first.base:
            first = now  # the file was rewritten and is shorter now
        elif now.size >= first.size + first.buffered:
            return
    raise StoreRefused(
        "stored, but Redis did not write it to its append-only file within "
        f"{WRITTEN_WITHIN:g} s, so it could get lost: check the disk of Redis"
    )


class _State(NamedTuple):
    """Sizes in bytes: of the file after its last rewrite, of the whole file, and of the unwritten buffer."""

    base: int
    size: int
    buffered: int

    @classmethod
    def look(cls, redis: Redis, server: int) -> _State:
        """Reads the sizes. Raises StoreUnavailable when the server is another one."""
        info = redis.info("persistence")
        if info["rdb_last_save_time"] != server:
            raise StoreUnavailable("Redis was restarted before it wrote to its append-only file: repeat the request")
        return cls(*(info.get(name, 0) for name in ("aof_base_size", "aof_current_size", "aof_buffer_length")))
