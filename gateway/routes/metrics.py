"""Prometheus."""

from __future__ import annotations

from flask import request
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.endpoints import Answer, Reply, endpoint
from gateway.metrics import Metrics
from gateway.sources import FEDERATED, Sources


class MetricsRoutes:
    """The metrics of this gateway and, where there is no Prometheus to collect them, of parts beside it."""

    def __init__(self, metrics: Metrics, sources: Sources) -> None:
        self.metrics = metrics
        self.sources = sources

    @endpoint(
        "GET",
        "/metrics",
        tag="metrics",
        # As at every other part: counts, and names of types and queues; no data, no ids, no callers.
        scope=None,
        answers={200: Answer(description="Metrics in the text format of Prometheus.", media_type=CONTENT_TYPE_LATEST)},
        store=False,
    )
    def metrics_page(self) -> Reply:
        """Shows the metrics of this gateway, and those of the parts in METRICS_SOURCES."""
        # A gateway that is asked by another does not ask on, or two that name each other would never answer.
        asked_by_gateway = FEDERATED in request.headers
        others = b"" if asked_by_gateway else self.sources.collect(self.metrics.names)
        return Reply(content=self.metrics.render() + others, media_type=CONTENT_TYPE_LATEST)
