"""An executor as its worker sees it, while it goes away."""

from __future__ import annotations

import math
import os

import pytest

from firmq.worker.executors import ipc, process
from firmq.worker.executors.process import ExecutorProcess
from tests.unit.worker.fakes import claimed, numbered


def test_nothing_is_written_to_an_executor_that_is_gone_or_was_told_to_end() -> None:
    member = ExecutorProcess("a worker")
    member.process.kill()
    member.process.wait()
    member._unsent += b"a task"
    assert member.flush(), "the reader of the pipe is gone"
    member._unsent += b"another"
    member.shutdown()
    assert member.flush(), "the number of the pipe may be another file's now"
    member.reap()


def test_tasks_are_sent_in_frames_of_a_bounded_size_and_one_that_exceeds_it_in_a_frame_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_FRAME_BYTES", 100)
    tasks = [
        claimed(str(size), data=b"d" * (size // 2), parent_results=b"p" * (size // 2))
        for size in (60, 30, 500, 50, 50, 20)
    ]
    assert [[int(task.id) for task in part] for part in process._frames(tasks)] == [[60, 30], [500], [50, 50], [20]]


def test_it_is_full_since_the_first_task_was_assigned_that_waits_for_a_slot() -> None:
    member = ExecutorProcess("a worker", ipc.CONCURRENT, slots=2)
    try:
        member.assign(numbered([claimed("a"), claimed("b"), claimed("c")]))
        assert member.full_since() == math.inf, "it has begun none: its slots are free"
        os.read(member._start_tokens_read, 2 * ipc.START_TOKEN_BYTES)
        assert member.full_since() == member.assigned[3].began_at
        member.finished(1)
        assert member.full_since() == math.inf, "the slot is free"
    finally:
        member.process.kill()
        member.process.wait()
        member.reap()
