"""Attempts leave no database connection open that is missing elsewhere, and never touch those of a caller."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq import LocalClient, use_client
from firmq.shared.domain.task import TaskState
from tests.integration.django.conftest import SETTINGS
from tests.support.harness import System, running_system, wait_until
from tests.support.postgresql import MAX_CONNECTIONS, PostgreSQL

POOLS = 2
"""Of a worker with one executor of each kind."""


@pytest.fixture
def tasks(django_project: str) -> Any:
    """The module with the tasks of the project."""
    from tests.support.django_project import tasks

    return tasks


# --- in the process of a test: the connections are the caller's ---


@pytest.mark.parametrize("kind", ["", "_async"], ids=["plain", "coroutine"])
def test_tasks_see_the_transaction_of_a_test_case_and_leave_it_alone(tasks: Any, kind: str) -> None:
    from django.contrib.auth.models import User
    from django.db import transaction
    from django.test import TestCase

    from firmq.django import submit_on_commit

    count_users = getattr(tasks, f"count_users{kind}")

    class Case(TestCase):
        def setUp(self) -> None:
            self.addCleanup(use_client, *use_client(LocalClient(["firmq.django.handlers"])))
            User.objects.create_user("ann")

        def counted(self, result: Any) -> Any:
            result.refresh()
            assert result.errors == []
            return result.return_value

        def test_a_task_that_is_enqueued(self) -> None:
            with self.assertNumQueries(1):
                result = count_users.enqueue()
            assert self.counted(result) == 1
            assert User.objects.count() == 1

        def test_a_task_of_a_commit(self) -> None:
            results: list[Any] = []
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                transaction.on_commit(lambda: results.append(count_users.enqueue()))
                submit_on_commit(tasks.count_users_handler)
            assert [self.counted(each) for each in results] == [1]
            assert User.objects.count() == 1

        async def test_a_test_that_is_a_coroutine(self) -> None:
            result = await count_users.aenqueue()
            await result.arefresh()
            assert (result.errors, result.status) == ([], "SUCCESSFUL")
            assert (result.return_value, await User.objects.acount()) == (1, 1)

    done = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(done)
    assert not done.errors + done.failures, "\n".join(text for _, text in done.errors + done.failures)
    assert done.testsRun == 3


def test_a_caller_keeps_a_connection_without_autocommit(tasks: Any) -> None:
    from django.contrib.auth.models import User
    from django.db import transaction

    before = use_client(LocalClient(["firmq.django.handlers"]))
    transaction.set_autocommit(False)
    try:
        User.objects.create_user("ann")
        result = tasks.count_users.enqueue()
        result.refresh()
        assert result.return_value == 1
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
        use_client(*before)
    assert User.objects.count() == 0


# --- in workers ---


@contextmanager
def workers(server: PostgreSQL, redis: Redis, url: str, folder: Path, count: int, **settings: str) -> Iterator[System]:
    """Workers of the project on an empty database of the server, with the slots of their defaults."""
    server.create("busy")
    environment = {
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "DJANGO_DATABASE": f"{server.folder} busy",
        "TASK_MODULES": "firmq.django.handlers",
        "WORKER_EXECUTORS": "1",
        **settings,
    }
    with running_system(redis, url, folder, **environment) as system:
        migrate = system.start("django", "migrate", "-v0")
        assert migrate.wait(60) == 0, system.logs()
        with server.connect("busy") as connection:
            names = [f"user {n}" for n in range(4)]
            connection.cursor().executemany(
                "INSERT INTO auth_user VALUES (DEFAULT, '', NULL, false, %s, '', '', '', false, true, now())",
                [(name,) for name in names],
            )
        for _ in range(count):
            system.start_worker()
        yield system


def all_completed(system: System, ids: list[str]) -> None:
    for each in ids:
        ended = system.ended(each)
        assert ended.summary.state is TaskState.COMPLETED, system.logs()


def closed_their_connections(server: PostgreSQL, executors: int) -> None:
    """Waits until only main threads of executors keep a connection."""
    wait_until(lambda: len(server.connections("busy")) <= executors, "idle threads closed their connections")


@pytest.mark.parametrize("age", ["0", "60", "None", "pool"])
def test_threads_and_coroutines_leave_no_connections(
    postgresql: PostgreSQL, redis_client: Redis, redis_url: str, tmp_path: Path, age: str
) -> None:
    with workers(postgresql, redis_client, redis_url, tmp_path, 1, DJANGO_CONN_MAX_AGE=age) as system:
        threads = [system.submit("count-in-thread", '{"seconds": 0.05}') for _ in range(40)]
        coroutines = [system.submit("count-in-coroutine", '{"seconds": 0.01}') for _ in range(40)]
        all_completed(system, [*threads, *coroutines, *(system.submit("leave-transaction", "{}") for _ in range(40))])
        if age == "pool":
            assert len(postgresql.connections("busy")) <= POOLS * 4, "a pool has up to four"
            return
        closed_their_connections(postgresql, 0)
        all_completed(system, [system.submit("count-users", "{}")])
        wait_until(lambda: len(postgresql.connections("busy")) == (age != "0"), "the main thread keeps its own")


@pytest.mark.parametrize("age", ["0", "60"])
def test_a_transaction_that_a_task_leaves_open_takes_nothing_of_the_next_task(
    postgresql: PostgreSQL, redis_client: Redis, redis_url: str, tmp_path: Path, age: str
) -> None:
    with workers(postgresql, redis_client, redis_url, tmp_path, 1, DJANGO_CONN_MAX_AGE=age) as system:
        all_completed(system, [system.submit("keep-transaction", "{}")])
        all_completed(system, [system.submit("create-user", '{"name": "next"}')])
        with postgresql.connect("busy") as connection:
            found = connection.execute("SELECT username FROM auth_user WHERE username IN ('lost', 'next')").fetchall()
        assert found == [("next",)]


@pytest.mark.alone
@pytest.mark.parametrize("age", ["0", "60"])
def test_a_burst_of_threads_leaves_connections_to_others(
    postgresql: PostgreSQL, redis_client: Redis, redis_url: str, tmp_path: Path, age: str
) -> None:
    with workers(postgresql, redis_client, redis_url, tmp_path, 2, DJANGO_CONN_MAX_AGE=age) as system:
        ids = [system.submit("count-in-thread", '{"seconds": 0.5}') for _ in range(300)]
        most = 0
        while not all(system.records.state(each).ended for each in ids):
            with postgresql.connect("busy") as site:
                site.execute("SELECT count(*) FROM auth_user")
            most = max(most, len(postgresql.connections("busy")))
        all_completed(system, ids)
        assert most < MAX_CONNECTIONS / 2
        closed_their_connections(postgresql, 0)
