"""The dashboard's own metrics: the durations of requests and of reading the system."""

from __future__ import annotations

import time

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})


class Metrics:
    """The metrics; labels are declared routes, known methods and status classes, so they are bounded."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped; drops the extra _created series
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "firmq_dashboard_request_duration_seconds",
            "Duration of requests to the dashboard, by route, method and status class.",
            ("route", "method", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.refreshes = Histogram(
            "firmq_dashboard_refresh_duration_seconds",
            "Time to read the state of the whole system, shared by all open pages.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.refresh_failures = Counter(
            "firmq_dashboard_refresh_failures_total",
            "Failed attempts to read the state of the system.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def install(self, app: Flask) -> None:
        """Measures every request of the app."""

        @app.before_request
        def begin() -> None:
            g.began = time.perf_counter()

        @app.after_request
        def end(response: Response) -> Response:
            route = request.url_rule.rule if request.url_rule else "none"
            method = request.method if request.method in _METHODS else "other"
            labels = (route, method, f"{response.status_code // 100}xx")
            self.requests.labels(*labels).observe(time.perf_counter() - g.began)
            return response
