"""Deploys: recorded when a version is first seen serving, bounded, with counts of attempts by type and version."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from firmq.shared.domain.clock import instant
from firmq.shared.redis.client import text
from firmq.shared.stores.deploys import HOURS, Deploys, Ends, VersionEnds
from firmq.shared.stores.task_types import types_publish
from firmq.shared.stores.workers import announce
from tests.integration.stores.test_search import end, submit
from tests.support.keys import keys
from tests.support.store import Store


def beat(store: Store, version: str, worker: str = "w", types: str = "set") -> None:
    about = json.dumps({"name": worker, "app_version": version})
    announce(store.scripts, worker, 60, about, "[]", '["state", "idle"]', 60, types, "h")


@pytest.fixture
def deploys(store: Store) -> Deploys:
    types_publish(store.scripts, "set", "h", True, [("noop", "v", "{}")])
    return Deploys(store.scripts)


def test_a_version_is_recorded_when_it_is_first_seen(store: Store, deploys: Deploys) -> None:
    begun = instant(store.clock.now_us)
    beat(store, "1.41")
    store.clock.advance(timedelta(hours=1))
    for worker in ("a", "b"):
        beat(store, "1.42", worker)
    store.clock.advance(timedelta(hours=1))
    beat(store, "1.41")
    new, old = deploys.all()
    assert (new.version, new.first_at, new.last_at) == ("1.42", begun + timedelta(hours=1), begun + timedelta(hours=1))
    assert (old.version, old.first_at, old.last_at) == ("1.41", begun, begun + timedelta(hours=2))


def test_a_worker_that_takes_no_tasks_or_has_no_version_is_no_deploy(store: Store, deploys: Deploys) -> None:
    beat(store, "")
    beat(store, "1.42", types="-")
    beat(store, '"; x')
    assert deploys.all() == []


def test_living_versions_stay_and_of_others_the_newest_200(store: Store, deploys: Deploys) -> None:
    beat(store, "living", "l")
    for number in range(220):
        beat(store, f"1.{number}")
        store.clock.advance(timedelta(minutes=5))
        beat(store, "living", "l")
    versions = [each.version for each in deploys.all()]
    assert "living" in versions
    assert "1.219" in versions
    assert "1.0" not in versions
    assert len(versions) <= 200 + 4
    assert store.redis.zcard(keys.DEPLOYS) == store.redis.zcard(keys.DEPLOYS_SEEN)


def test_attempts_are_counted_by_type_and_version(store: Store, deploys: Deploys) -> None:
    for _ in range(3):
        end(store, submit(store), "completed", version="1.41")
    end(store, submit(store), version="1.41")
    store.clock.advance(timedelta(hours=3))
    end(store, submit(store), "retrying", version="1.42")
    end(store, submit(store), "completed", version="")
    found = {each.version: each for each in deploys.ends(store.clock.now_us)}
    assert found["1.41"] == VersionEnds(type="noop", version="1.41", recent=Ends(), day=Ends(3, 1))
    assert found["1.42"] == VersionEnds(type="noop", version="1.42", recent=Ends(0, 1), day=Ends(0, 1))
    assert deploys.ends(store.clock.now_us) == list(found.values())
    store.clock.advance(timedelta(hours=HOURS))
    assert deploys.ends(store.clock.now_us) == []
    [key, *_] = [text(each) for each in store.redis.scan_iter(f"{keys.version_ends(0)[:-1]}*")]
    assert 0 < store.redis.ttl(key) <= 26 * 3600


def test_the_counts_of_an_hour_are_bounded(store: Store, deploys: Deploys) -> None:
    key = keys.version_ends(store.clock.now_us // 3_600_000_000)
    store.redis.hset(key, mapping={f"1|t{number}|failed": 1 for number in range(4999)})
    end(store, submit(store), version="1.41")
    end(store, submit(store), version="1.41")
    end(store, submit(store), version="1.42")
    assert store.redis.hlen(key) == 5000
    assert store.redis.hget(key, "1.41|noop|failed") == b"2"


def test_corrupt_counts_are_left_out(store: Store, deploys: Deploys) -> None:
    key = keys.version_ends(store.clock.now_us // 3_600_000_000)
    store.redis.hset(key, mapping={"1|noop|failed": "x", "1|noop": 1, "1|noop|else": 1, "1|noop|completed": 2})
    assert deploys.ends(store.clock.now_us) == [
        VersionEnds(type="noop", version="1", recent=Ends(2, 0), day=Ends(2, 0))
    ]
