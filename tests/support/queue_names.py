"""Queues for parts that are built without settings."""

from __future__ import annotations

from collections.abc import Mapping

from firmq.shared.domain.queue_selection import QueueSelection
from firmq.worker.engine.claimed_queues import ClaimedQueues


def claimed_queues(weights: Mapping[str, int]) -> ClaimedQueues:
    """Exactly these, each with its weight."""
    return ClaimedQueues(QueueSelection(weights, weights, next(iter(weights))))
