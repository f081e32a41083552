"""Housekeepers are killed and frozen, databases are away: each end is stored once, and nothing else waits."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from firmq.shared import failpoints
from firmq.shared.domain.task import TaskState, new_task_id
from firmq.shared.features.history import unarchived
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System, free_port, scrape, wait_until
from tests.support.history import DATABASES, Contents, empty_history
from tests.support.keys import keys


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from empty_history(request.param, tmp_path)


def end_many(system: System, count: int, state: str = "completed") -> list[str]:
    """Ends tasks without a worker."""
    ids = system.submit_many([("noop", "null")] * count)
    token = new_task_id()
    system.scripts.call("claim", *claiming("w", token, 60_000_000, count, 1 << 24, "normal", count))
    for start in range(0, count, 100):
        ends = (ended(each, token, state, '{"outcome":"completed"}') for each in ids[start : start + 100])
        assert set(report(system.scripts, *ends)) == {1}
    return ids


def registers(system: System) -> bool:
    return bool(system.redis.exists(keys.HISTORY))


def all_stored(system: System) -> bool:
    return registers(system) and not system.redis.exists(keys.UNARCHIVED)


def has_rows(contents: Contents, count: int) -> bool:
    return len(contents.rows()) >= count


def each_once(contents: Contents, ids: list[str]) -> bool:
    return Counter(task_id for task_id, _ in contents.ends()) == Counter(ids) and contents.total("completed") == len(
        ids
    )


def test_a_housekeeper_killed_behind_its_commit_stores_nothing_twice(system: System, url: str, tmp_path: Path) -> None:
    trap = {failpoints.VARIABLE: f"history.stored:1:kill:{tmp_path / 'flag'}", "HISTORY_URL": url}
    victim = system.start_housekeeper(HISTORY_URL=url)
    wait_until(lambda: registers(system), "ends are registered")
    victim.terminate()
    victim.wait()
    ids = end_many(system, 500)
    victim = system.start_housekeeper(**trap)
    wait_until(lambda: victim.poll() == -signal.SIGKILL, "the housekeeper died with its batch committed")
    contents = Contents(url)
    assert 0 < len(contents.rows()) < 500
    assert system.redis.zcard(keys.UNARCHIVED) == 500
    system.start_housekeeper(**trap)
    wait_until(lambda: all_stored(system), "all ends are stored")
    assert each_once(contents, ids)


def test_housekeepers_killed_at_any_moment_store_each_end_once(system: System, url: str) -> None:
    system.start_housekeeper(HISTORY_URL=url)
    wait_until(lambda: registers(system), "ends are registered")
    moments = random.Random(7)
    ids = []
    for _ in range(6):
        ids += end_many(system, 300)
        before = len(Contents(url).rows())
        some = before + moments.randrange(1, 250)
        wait_until(partial(has_rows, Contents(url), some), "some are stored")
        system.processes[-1].kill()
        system.processes[-1].wait()
        system.start_housekeeper(HISTORY_URL=url)
    wait_until(lambda: all_stored(system), "all ends are stored")
    assert each_once(Contents(url), ids)


def test_a_housekeeper_that_was_frozen_adds_nothing_when_it_goes_on(system: System, url: str, tmp_path: Path) -> None:
    together = {
        "HISTORY_URL": url,
        "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
        "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "1",
    }
    trap = {failpoints.VARIABLE: f"history.stored:2:freeze:{tmp_path / 'flag'}"}
    frozen = system.start_housekeeper(**together, **trap)
    wait_until(lambda: registers(system), "ends are registered")
    ids = end_many(system, 300)
    wait_until((tmp_path / "flag").exists, "it is frozen behind its commit")
    system.start_housekeeper(**together)
    wait_until(lambda: all_stored(system), "the other one has stored the rest")
    ids += end_many(system, 100)
    os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: all_stored(system), "all ends are stored")
    assert each_once(Contents(url), ids)


def test_while_the_database_is_away_tasks_run_and_ends_wait(system: System, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    url = f"sqlite:///{folder}/history.db"
    port = free_port()
    housekeeper = system.start_housekeeper(HISTORY_URL=url, HOUSEKEEPER_METRICS_PORT=str(port))
    wait_until(lambda: registers(system), "ends are registered")
    system.start_worker()
    task = system.submit("noop")
    done = system.ended(task).summary.state
    wait_until(lambda: scrape(port).get(("firmq_history_failures_total", ())), "failures are counted")

    def waits_in_vain() -> bool:
        feed = unarchived.feed(system.scripts)
        return feed is not None and feed.waiting == 1 and "database of the history cannot be used" in feed.error

    wait_until(waits_in_vain, "the error is shown")
    wait_until(lambda: scrape(port).get(("firmq_history_waiting", ())) == 1, "the leader shows it")
    folder.mkdir()
    wait_until(lambda: all_stored(system), "the end is stored")
    assert Contents(url).ends() == [(task, done)]
    assert housekeeper.poll() is None
    assert (tmp_path / "housekeeper-0.log").read_text().count("the history cannot be stored") == 1


def test_a_database_that_hangs_holds_up_no_other_job(system: System, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    system.start_housekeeper(HISTORY_URL=url)
    wait_until(lambda: registers(system) and (tmp_path / "history.db").exists(), "there is a history")
    end_many(system, 1)
    wait_until(lambda: all_stored(system), "it is stored")
    other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    ids = end_many(system, 1)
    system.start_worker()
    task = system.submit("noop")
    assert system.ended(task).summary.state in set(TaskState)
    assert system.redis.zcard(keys.UNARCHIVED) == 2
    other.execute("ROLLBACK")
    wait_until(lambda: all_stored(system), "all ends are stored")
    assert len(Contents(url).rows()) == len(ids) + 2


def test_a_single_housekeeper_without_history_gives_up_what_waits(system: System, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none/history.db"
    first = system.start_housekeeper(HISTORY_URL=url)
    wait_until(lambda: registers(system), "ends are registered")
    end_many(system, 3)
    first.terminate()
    first.wait()
    assert system.redis.zcard(keys.UNARCHIVED) == 3
    system.start_housekeeper()
    wait_until(lambda: not system.redis.keys(f"{keys.HISTORY}*"), "nothing of it is left")
