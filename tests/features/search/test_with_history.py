"""Breakdowns count the tasks that Redis has, also where there is a history."""

from __future__ import annotations

from redis import Redis

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.stores import maintenance
from tests.features.history.conftest import Archive, archive

__all__ = ["archive"]


def test_archived_tasks_are_not_counted(archive: Archive, redis_client: Redis) -> None:
    archive.end(count=3)
    archive.feed()
    maintenance.prune(archive.store.scripts, TaskState.COMPLETED, 0, 10)
    http = create_app(Settings.model_validate({"history_url": archive.url}), redis_client).test_client()
    assert len((http.get("/tasks?status=completed").json or {})["items"]) == 3
    assert (http.get("/breakdown?status=completed").json or {})["tasks"] == 0
