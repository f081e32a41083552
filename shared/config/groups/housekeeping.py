"""Housekeeping jobs, their locks, and how long ended tasks are kept."""

from __future__ import annotations

import os
import socket

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Choices, Kept, Seconds


class HousekeepingSettings(Group):
    """Housekeeping jobs, their locks, and how long ended tasks are kept."""

    housekeeper_distributed_execution_enabled: bool = at(
        "housekeeper.distributed_execution.enabled",
        True,
        "Housekeepers share the work under locks; false: no lock is taken, for a single housekeeper.",
    )
    housekeeper_distributed_execution_instance_id: str = at(
        "housekeeper.distributed_execution.instance_id",
        "",
        "Name of this housekeeper; empty: host name and process id.",
    )
    housekeeper_distributed_execution_lock_ttl: Seconds = at(
        "housekeeper.distributed_execution.lock_ttl",
        30,
        "Lifetime of a housekeeping lock; renewed at a third of it.",
        ge=1,
    )
    housekeeper_lock_wait: Seconds = at(
        "housekeeper.distributed_execution.lock_wait", 0, "How long a job waits for its lock; 0: it skips the run."
    )
    housekeeper_lock_on_error: Choices = at(
        "housekeeper.distributed_execution.on_error",
        {},
        "Behavior of a job when Redis cannot answer whether its lock is free: skip (the default), or run (only unlock, "
        "timeout, schedules).",
    )
    housekeeper_leader_lease: Seconds = at(
        "housekeeper.distributed_execution.leader_lease",
        10,
        "Longest time without a leader after one died; its lock lives longer, for a leader that is only slow.",
        ge=1,
    )
    housekeeper_unlock_parallelism: int = at(
        "housekeeper.unlock.parallelism", 5, "Queues whose due tasks are moved at the same time.", ge=1, le=64
    )
    housekeeper_unlock_interval: Seconds = at(
        "housekeeper.unlock.interval", 0.25, "Pause between checks for due tasks.", gt=0
    )
    housekeeper_timeout_interval: Seconds = at(
        "housekeeper.timeout.interval", 1, "Pause between checks for ended leases.", gt=0
    )
    housekeeper_recovery_interval: Seconds = at(
        "housekeeper.recovery.interval", 5, "Pause between runs of the consistency check.", gt=0
    )
    housekeeper_recovery_grace: Seconds = at(
        "housekeeper.recovery.grace", 10, "Age from which a pending task must have a queue entry."
    )
    housekeeper_ttl_interval: Seconds = at(
        "housekeeper.ttl.interval", 5, "Pause between removals of old records.", gt=0
    )
    housekeeper_recovery_tasks: int = at(
        "housekeeper.recovery.tasks",
        2000,
        "Tasks that each run of the consistency check examines; it goes through all of them in turn.",
        ge=0,
        le=50000,
    )
    housekeeper_max_elements_interval: Seconds = at(
        "housekeeper.max_elements.interval", 10, "Pause between checks of the limits on stored records.", gt=0
    )
    housekeeper_metrics_interval: Seconds = at(
        "housekeeper.metrics.interval", 1, "Pause between measurements of the whole system by the leader.", gt=0
    )
    max_completed: Kept = at(
        "limits.completed", 1_000_000, "Maximum completed tasks kept; the oldest are removed first; 0: no limit."
    )
    max_failed: Kept = at(
        "limits.failed", 100_000, "Maximum dead letters kept; the oldest are removed first; 0: no limit."
    )
    max_cancelled: Kept = at(
        "limits.cancelled", 100_000, "Maximum cancelled tasks kept; the oldest are removed first; 0: no limit."
    )
    max_expired: Kept = at(
        "limits.expired", 100_000, "Maximum expired tasks kept; the oldest are removed first; 0: no limit."
    )
    retention_completed: Seconds = at("retention.completed", 86400, "How long a completed task is kept.")
    retention_failed: Seconds = at("retention.failed", 30 * 86400, "How long a dead letter is kept.")
    retention_cancelled: Seconds = at("retention.cancelled", 86400, "How long a cancelled task is kept.")
    retention_expired: Seconds = at("retention.expired", 7 * 86400, "How long an expired task is kept.")
    retention_deleted: Seconds = at(
        "retention.deleted", 86400, "How long a deleted task can be restored; 0: deletions are final."
    )

    @property
    def instance_id(self) -> str:
        """Returns the name of this housekeeper: the setting, else host name (in Kubernetes: pod) and process id."""
        return self.housekeeper_distributed_execution_instance_id or f"{socket.gethostname()}-{os.getpid()}"
