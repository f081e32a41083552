"""Queues, and bounds of stored data."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Mappings, Seconds, Weights
from firmq.shared.domain.limit import Limit, check_name, read_limit


class QueueSettings(Group):
    """Queues, and bounds of stored data."""

    queues: Weights = at(
        "queues",
        {"critical": 6, "high": 4, "normal": 3, "low": 1},
        "Priorities and their weights: how many tasks a worker takes from each in turn.",
        min_length=1,
        max_length=64,
    )
    default_priority: str = at("default_priority", "normal", "Priority of a task that names none, or `default`.")
    max_queues: int = at(
        "limits.queues",
        200,
        "Maximum number of queues, including those of QUEUES; a task for one more is refused with 409. One API key can "
        "create at most half of them.",
        ge=1,
        le=1000,
    )
    queue_retention: Seconds = at(
        "limits.queue_retention",
        3600,
        "How long a queue that is not in QUEUES is kept after its last task.",
        ge=60,
    )
    max_queue_length: int = at(
        "limits.queue_length",
        0,
        "Number of tasks ready to run in a queue from which submissions get 429; 0: no limit.",
        ge=0,
    )
    max_body_bytes: int = at("limits.body_bytes", 1 << 20, "Largest request body.", ge=1024, le=64 << 20)
    max_json_depth: int = at("limits.json_depth", 64, "Deepest nesting of a request body.", ge=4, le=200)
    idempotency_ttl: Seconds = at(
        "limits.idempotency_ttl", 86400, "How long the response to a request with an Idempotency-Key is kept.", ge=60
    )
    max_result_bytes: int = at("limits.result_bytes", 1 << 20, "Largest result of a task, as JSON.", ge=64, le=64 << 20)
    refuse_without_worker: bool = at(
        "gateway.refuse_without_worker",
        False,
        "Rejects tasks of a type that no live worker offers; otherwise they are accepted with a warning, and wait.",
    )
    type_cache_time: Seconds = at(
        "gateway.type_cache_time",
        1,
        "How long a gateway uses the task types that it has read. Unknown ones, and those whose schema refuses a task, "
        "are looked up at once.",
    )
    type_retention: Seconds = at(
        "limits.type_retention",
        7 * 86400,
        "How long a task type is kept after the last heartbeat of a worker that offers it.",
        ge=60,
    )
    max_log_bytes: int = at(
        "limits.log_bytes", 16384, "Bytes of log kept per attempt; the oldest lines are dropped.", ge=0, le=1 << 20
    )
    max_delay: Seconds = at("limits.delay", 366 * 86400, "Longest delay of a task.")
    task_limits: Mappings = at(
        "limits.tasks",
        {},
        "Limits by name (type:NAME or key:NAME), each with concurrency, rate (such as 10/s) and burst.",
    )

    @property
    def default_weight(self) -> int:
        """Returns the weight of a queue that no setting names: the default priority's."""
        return self.queues[self.default_priority]

    def declared_limits(self) -> dict[str, Limit]:
        """Returns the declared limits by name. Raises ValueError with all mistakes."""
        limits: dict[str, Limit] = {}
        mistakes: list[str] = []
        for name, given in self.task_limits.items():
            try:
                limits[check_name(name)] = read_limit(given if isinstance(given, dict) else {"rate": given})
            except ValueError as error:
                mistakes.append(f"{name}: {error}")
        if mistakes:
            raise ValueError(f"TASK_LIMITS: {'; '.join(mistakes)}")
        return limits
