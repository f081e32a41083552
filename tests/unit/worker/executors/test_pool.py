"""What a worker does when the system has no room for another executor."""

from __future__ import annotations

import errno
import logging
import os
import selectors
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import worker.executors.pool as crew_module
from shared.config.settings import Settings
from worker.executors.pool import ExecutorPool


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


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
