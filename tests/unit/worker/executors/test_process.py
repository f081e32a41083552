"""An executor as its worker sees it, while it goes away."""

from __future__ import annotations

from worker.executors.process import ExecutorProcess


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
