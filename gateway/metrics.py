"""What the gateway counts about itself. With several processes the counts of all are added up (`serve.py`)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters with bounded labels: task types and priorities that exist, routes as they are declared."""

    def __init__(self, registry: CollectorRegistry | None = None, shared_folder: str | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.shared_folder = shared_folder
        self.submissions = Counter(
            "task_submissions_total", "Tasks accepted.", ("priority", "type"), registry=self.registry
        )
        self.requests = Histogram(
            "taskqueue_http_request_duration_seconds",
            "Requests by route, method and class of status.",
            ("route", "method", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    @property
    def names(self) -> frozenset[str]:
        """The families that are ours, which no other part may add to."""
        return frozenset({"task_submissions", "taskqueue_http_request_duration_seconds"})

    def submitted(self, priority: str, task_type: str) -> None:
        """A task was stored."""
        self.submissions.labels(priority, task_type).inc()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests.labels(route, method, f"{status // 100}xx").observe(seconds)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        if self.shared_folder is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self.shared_folder)  # type: ignore[no-untyped-call]  # it has none
        return generate_latest(registry)
