"""When executors are started and replaced, and what happens when the system has no room for another one."""

from __future__ import annotations

import errno
import logging
import os
import selectors
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firmq.shared.config.settings import Settings
from firmq.worker.executors import pool as crew_module
from firmq.worker.executors.pool import ExecutorPool
from tests.unit.worker.fakes import FakeExecutor, FakeTime


def test_an_executor_that_cannot_be_started_leaves_no_file_open_and_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[object] = []
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(crew_module, "time", clock)

    def no_room(*about: object, **more: object) -> None:
        tries.append(about)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", no_room)
    pool = ExecutorPool("w", Settings(), selectors.DefaultSelector(), threading.Event())
    before = open_files()
    pool.spawn_missing()
    pool.spawn_missing()
    assert open_files() == before
    assert len(tries) == 1
    assert pool.members == []
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert "Resource temporarily unavailable" in line.getMessage()
    clock.monotonic = lambda: 1003.0
    pool.spawn_missing()
    assert len(tries) == 2


@pytest.mark.parametrize("wanted", [1, 2])
def test_as_many_concurrent_executors_retire_at_a_time_as_there_should_be(wanted: int) -> None:
    pool = pool_of(*(FakeExecutor(FakeTime(), pid, slots=10) for pid in range(4)), concurrent_executors=wanted)
    for member in pool:
        pool.replace(member)
    assert [member.retiring for member in pool] == [True] * wanted + [False] * (4 - wanted)
    pool.retire_spent()
    assert sum(member.retiring for member in pool) == wanted
    del pool.members[0]
    pool.retire_spent()
    assert [member.retiring for member in pool] == [True] * wanted + [False] * (3 - wanted)


def test_serial_executors_wait_for_none_to_retire() -> None:
    pool = pool_of(FakeExecutor(FakeTime(), slots=10), *(FakeExecutor(FakeTime(), pid) for pid in range(2, 5)))
    for member in pool:
        pool.replace(member)
    assert all(member.retiring for member in pool)


def pool_of(*members: FakeExecutor, **settings: Any) -> ExecutorPool:
    pool = ExecutorPool("w", Settings(**settings), selectors.DefaultSelector(), threading.Event())
    pool.members = cast("Any", list(members))
    return pool


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
