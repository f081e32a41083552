"""Endpoint that lists why pending tasks wait."""

from __future__ import annotations

from pydantic import Field

from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.schemas.values import View
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.waiting import Reason, explain_waiting
from firmq.shared.stores.workers import Workers


class WaitingReasonView(View):
    """A reason for which pending tasks wait."""

    reason: Reason
    name: str | None = Field(description="The queue, limit or task type that the reason is about.")
    count: int
    text: str = Field(description="The reason in words.")
    advice: str = Field(description="How to lift it.")
    page: str = Field(description="Path of the dashboard's page where it is lifted.")


class WaitingView(View):
    """Why pending tasks wait; the counts add up to `total`."""

    total: int
    reasons: list[WaitingReasonView]


class WaitingRoutes:
    """The reasons for which the pending tasks of the system wait."""

    def __init__(self, scripts: Scripts, queues: Queues, workers: Workers) -> None:
        self.scripts = scripts
        self.queues = queues
        self.workers = workers

    @endpoint(
        "GET",
        "/waiting",
        Across.WAITING,
        tag="queues",
        answers={200: Answer(description="The reasons, the most frequent first.", model=WaitingView)},
    )
    def show(self) -> Reply:
        """Lists why pending tasks wait, and how to lift each reason. The cost does not depend on their number."""
        found = explain_waiting(self.scripts, self.queues.overview(), self.workers.look().live)
        reasons = [
            WaitingReasonView(
                reason=each.reason,
                name=each.name or None,
                count=each.count,
                text=each.text,
                advice=each.advice,
                page=each.page,
            )
            for each in found
        ]
        return Reply(content=WaitingView(total=sum(each.count for each in found), reasons=reasons))
