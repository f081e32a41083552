"""The fields of an RQ job that the claim of its task reads."""

from __future__ import annotations

import time
from typing import NamedTuple

FRESH_US = 200_000
"""Microseconds after its claim from which on a job is read again: it may have been cancelled."""


class ClaimedJob(NamedTuple):
    """Fields of a job's record, as `rq_job` in `_claim_describe.lua` reads them; None for one that it lacks."""

    claimed_us: int
    """When it was read, on the monotonic clock of the machine."""
    dependents: int
    """Whether other jobs depend on it."""
    status: bytes | None
    enqueued_at: bytes | None
    data: bytes
    meta: bytes | None
    timeout: bytes | None
    result_ttl: bytes | None
    success_callback_name: bytes | None
    failure_callback_name: bytes | None
    stopped_callback_name: bytes | None
    dependency_ids: bytes | None
    repeats_left: bytes | None
    rate_limit_key: bytes | None

    def is_plain(self, enqueued_at: str) -> bool:
        """Returns whether at a good end RQ writes the job's status and its result, and nothing else.

        False also for one that was claimed a while ago, was enqueued at another time, or does not wait any more.
        """
        return (
            self.status == b"queued"
            and (self.enqueued_at or b"").decode() == enqueued_at
            and not self.dependents
            and not any(self[8:])
            and self.result_ttl != b"0"
            and time.monotonic_ns() // 1000 - self.claimed_us < FRESH_US
        )

    @property
    def record(self) -> dict[bytes, bytes]:
        """Returns the fields that are checked."""
        return {b"data": self.data, b"meta": self.meta or b""}
