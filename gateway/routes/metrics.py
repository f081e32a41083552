"""Endpoint of the metrics for Prometheus."""

from __future__ import annotations

from flask import request
from prometheus_client import CONTENT_TYPE_LATEST

from firmq.gateway import schemas
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.metrics import Metrics
from firmq.gateway.metrics_federation import MetricsFederation
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal


class MetricsRoutes:
    """The metrics of this gateway and of the parts in METRICS_SOURCES."""

    def __init__(self, metrics: Metrics, metrics_federation: MetricsFederation, public_port: int) -> None:
        self.metrics = metrics
        self.metrics_federation = metrics_federation
        self.public_port = public_port

    @endpoint(
        "GET",
        "/metrics",
        Across.FIRST,
        tag="metrics",
        # Open as in every other part: counts, and names of types and queues; no data, ids or clients.
        scope=None,
        query=schemas.MetricsQuery,
        answers={200: Answer(description="Metrics in the text format of Prometheus.", media_type=CONTENT_TYPE_LATEST)},
        problems=(refusals.NOT_FOUND,),
        store=False,
    )
    def metrics_page(self, query: schemas.MetricsQuery) -> Reply:
        """Returns the metrics of this gateway and of the parts in METRICS_SOURCES."""
        if self.public_port and request.environ["SERVER_PORT"] == str(self.public_port):
            raise Refusal(refusals.NOT_FOUND, "GATEWAY_PUBLIC_PORT has no metrics: use GATEWAY_PORT")
        others = self.metrics_federation.collect(self.metrics.names) if query.parts == "all" else b""
        return Reply(content=self.metrics.render() + others, media_type=CONTENT_TYPE_LATEST)
