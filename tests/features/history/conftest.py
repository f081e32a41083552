"""A store whose ended tasks are fed to a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.features.history.database import Database
from firmq.shared.features.history.feeding import Feeder
from firmq.shared.features.history.unarchived import Unarchived
from tests.integration.conftest import store, system
from tests.support.history import DATABASES, Contents, empty_history
from tests.support.store import Store, store_on

__all__ = ["store", "system"]


@dataclass
class Archive:
    """A store, what waits for its history, and the database."""

    store: Store
    url: str
    unarchived: Unarchived = field(init=False)
    feeder: Feeder = field(init=False)
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        self.unarchived = Unarchived(self.store.scripts)
        self.feeder = Feeder(Database(self.url, 10))
        self.contents = Contents(self.url)
        self.unarchived.take(1)  # from here on ends are registered

    def feed(self) -> int:
        """Stores all that waits; how many were new."""
        stored = 0
        while ends := self.unarchived.take(100):
            stored += self.feeder.store(ends)
            self.unarchived.done(ends)
        return stored

    def end(self, state: str = "completed", count: int = 1, **options: Any) -> list[str]:
        """Submits tasks and ends each in this way."""
        ids = self.store.submit(count, **options)
        token = f"of-{ids[0]}"
        assert sorted(self.store.claim(count, token)) == sorted(ids)
        for each in ids:
            assert self.store.report(each, state, token)
        return ids


@pytest.fixture(params=DATABASES)
def archive(request: pytest.FixtureRequest, redis_client: Redis, tmp_path: Path) -> Iterator[Archive]:
    for url in empty_history(request.param, tmp_path):
        made = Archive(store_on(redis_client), url)
        yield made
        made.feeder.database.engine.dispose()
        made.contents.engine.dispose()
