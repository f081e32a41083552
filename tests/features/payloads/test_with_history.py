"""Payloads of tasks that are in the history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.task import TaskState
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.feeding import Feeder
from firmq.shared.features.history.reading import History
from firmq.shared.features.history.records import AllRecords
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores import maintenance
from firmq.worker.features.payloads import job
from tests.features.payloads.test_job import Pass
from tests.support.history import empty_history
from tests.support.store import store_on


@pytest.fixture
def archive_url(tmp_path: Path) -> Iterator[str]:
    yield from empty_history("sqlite", tmp_path)


def test_a_payload_is_kept_as_long_as_the_history_has_its_task(
    redis_client: Redis, tmp_path: Path, archive_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payloads").mkdir()
    found = open_payload_store(f"file://{tmp_path}/payloads")
    assert found
    history = History(Database(archive_url, 10))
    store = store_on(redis_client)
    work = Pass(store, found, AllRecords(store.records, history))
    unarchived, feeder = Unarchived(work.store.scripts), Feeder(Database(archive_url, 10))
    feeder.store([])
    unarchived.take(1)  # from here on ends are registered
    reference = work.submit("archived")
    work.end("archived")
    maintenance.prune(work.store.scripts, TaskState.COMPLETED, 0, 10)
    assert work.run() == ["archived"], "it waits for the history"
    ends = unarchived.take(10)
    feeder.store(ends)
    unarchived.done(ends)
    assert work.run() == ["archived"], "the history has it"
    assert history.get("archived").data == reference
    monkeypatch.setattr(job, "_MOST_KEPT_ENDS", -1)
    work.payloads.keep("orphan", b"[]")
    assert sorted(work.run()) == ["archived", "orphan"], "nothing is removed while the history is far behind"
    monkeypatch.undo()
    feeder.prune(dict.fromkeys(TaskState, timedelta()), work.store.scripts.now_us() + 10**12, 100)
    assert work.run() == []
    for each in (history.database, feeder.database):
        each.engine.dispose()
