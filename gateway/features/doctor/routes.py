"""The endpoint of the doctor."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

from firmq.gateway.features.doctor.schemas import HealthCheck, HealthDetail
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.shared.conditions.findings import worst
from firmq.shared.features.doctor.examination import examine
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings

EXAMINING = 2
"""Examinations at a time: each takes a thread for seconds when Jaeger or Prometheus does not answer."""


class DoctorRoutes:
    """What the doctor finds from here."""

    def __init__(self, settings: Settings, redis: Redis, version: str) -> None:
        self.settings = settings
        self.redis = redis
        self.version = version
        self.examining = threading.BoundedSemaphore(EXAMINING)

    @endpoint(
        "GET",
        "/health/detail",
        Across.CHECKS,
        tag="health",
        answers={200: Answer(description="Every check with its finding and advice.", model=HealthDetail)},
        problems=(errors.ASKED_TOO_OFTEN,),
        store=False,
    )
    def detail(self) -> Reply:
        """Examines Redis, settings, workers, housekeeping, Jaeger and Prometheus, with advice on each finding."""
        if not self.examining.acquire(blocking=False):
            headers = {"Retry-After": str(refusals.RETRY_AFTER)}
            detail = f"{EXAMINING} examinations are in progress: try again after Retry-After"
            raise Refusal(errors.ASKED_TOO_OFTEN, detail, headers=headers)
        try:
            findings = examine(self.settings, self.redis)
        finally:
            self.examining.release()
        checks = [HealthCheck(**asdict(each)) for each in findings]
        return Reply(content=HealthDetail(status=worst(findings).value, version=self.version, checks=checks))
