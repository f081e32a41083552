"""What the monitor does with tasks whose executor talks, is slow, dies, or has to be stopped."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.domain.retry import RetryPolicy
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.lane import SLOW
from firmq.worker.executors import ipc
from firmq.worker.executors.crash_reports import CrashReports
from firmq.worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL
from firmq.worker.executors.monitor import CLOSED_PIPE_GRACE, LONGEST_WAIT, SILENT, ExecutorMonitor
from firmq.worker.metrics import WorkerMetrics
from tests.unit.worker.fakes import (
    FakeExecutor,
    FakePool,
    FakeSession,
    FakeSpans,
    FakeTime,
    claimed,
    lanes_of,
    numbered,
)

GRACE = 2.0


class Scene:
    """A monitor over one executor with tasks `a`, `b` and `c`, of which `a` has begun, and an idle one.

    With `slots` the one is concurrent, and has begun all three.
    """

    def __init__(self, slots: int = 0, **settings: Any) -> None:
        self.time = FakeTime()
        self.executor, self.other = FakeExecutor(self.time, slots=slots), FakeExecutor(self.time, pid=2)
        self.executors = [self.executor, self.other]
        self.pool, self.session, self.spans = FakePool(self.executor, self.other), FakeSession(self.time), FakeSpans()
        self.metrics = WorkerMetrics("w")
        about = Settings(kill_grace=GRACE, **settings)
        reports = CrashReports("w", RetryPolicy(initial_delay=7), 3, cast("Any", self.pool))
        lanes = lanes_of(self.pool, self.time, about.claimed_queue_executors)
        self.lane = lanes.serial
        make: Any = ExecutorMonitor
        self.monitor = make(
            about, self.pool, lanes, self.session.margin, reports, self.metrics, self.spans, monotonic=self.time
        )
        self.a, self.b, self.c = numbered(claimed(name, self.time, concurrent=slots > 0) for name in "abc")
        self.executor.assign([self.a, self.b, self.c])
        self.executor.begin()

    def ends(self, task: ClaimedTask, outcome: str = "completed", state: str = "completed") -> None:
        ended = ipc.EndedAttempt(outcome, state, b"{}", number=task.number, run_us=50_000)
        self.executor.events.append((ipc.OUTCOME, *ended))
        self.monitor.read_events()

    def is_stuck(self, number: int) -> None:
        self.executor.events.append((ipc.STUCK, number))
        self.monitor.read_events()

    def dies(self) -> None:
        self.executor.dead = True
        self.monitor.check(self.time())

    def after(self, seconds: float) -> None:
        self.time.now += seconds
        self.monitor.check(self.time())

    def occupy_the_other(self) -> None:
        [task] = numbered([claimed("other", self.time)])
        self.other.assign([task])
        self.other.begin()


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- events ---


def test_an_outcome_is_reported_and_tells_how_long_tasks_take(scene: Scene) -> None:
    scene.ends(scene.a)
    [report] = scene.session.reports
    assert (report.claimed, report.ended.outcome, report.ended.state) == (scene.a, "completed", "completed")
    assert (report.ended.run_us, scene.lane.prefetch.seconds) == (50_000, 0.05)


def test_tasks_of_a_bounded_queue_tell_nothing_about_others() -> None:
    scene = Scene(queue_executors={"normal": 1})
    scene.ends(scene.a)
    assert scene.lane.prefetch.seconds is None


def test_a_task_that_was_stopped_for_another_is_returned(scene: Scene) -> None:
    scene.ends(scene.a, "cancelled", "cancelled")
    [report] = scene.session.reports
    assert (report.ended.outcome, report.ended.state) == ("interrupted", "pending")


def test_log_lines_and_progress_are_kept_with_their_task(scene: Scene) -> None:
    scene.executor.events += [(ipc.LOG, scene.a.number, "hello"), (ipc.PROGRESS, scene.a.number, b"{}")]
    scene.monitor.read_events()
    assert (list(scene.a.logs), scene.a.progress, scene.monitor.progress_came) == (["hello"], b"{}", True)


def test_an_executor_with_foreign_bytes_in_its_pipe_is_killed(scene: Scene) -> None:
    scene.executor.events.append(cast("Any", ipc.CorruptFrame("bytes that do not form a frame")))
    scene.monitor.read_events()
    assert scene.executor.closed_to_input
    assert str(scene.executor.killed_because).startswith("pipes: ")


def test_an_executor_that_ends_for_what_a_handler_left_behind_loses_the_tasks_it_has_not_begun(scene: Scene) -> None:
    scene.executor.events.append((ipc.LEFT, "mail", "a thread", 30, True))
    scene.monitor.read_events()
    assert scene.executor.retiring
    assert list(scene.lane.ready) == [scene.b, scene.c]
    assert scene.monitor.check_due


def test_executors_that_end_for_the_same_reason_are_logged_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for what in ("the priority", "the priority", "the user", "the priority"):
        scene.executor.events.append((ipc.LEFT, "mail", what, logging.WARNING, True))
    scene.monitor.read_events()
    assert [each.getMessage() for each in caplog.records] == [
        "handler mail left behind the priority",
        "handler mail left behind the user",
    ]


# --- limits ---


def test_a_task_over_its_time_limit_is_signalled_until_the_grace_is_over_and_then_killed(scene: Scene) -> None:
    scene.a.limit = 5.0
    scene.after(5.1)
    scene.after(GRACE / 2)
    assert scene.executor.signals == [TIME_LIMIT_SIGNAL, TIME_LIMIT_SIGNAL]
    assert scene.executor.killed_because is None
    scene.after(GRACE)
    assert scene.executor.killed_because == "time limit"


def test_an_executor_over_its_memory_limit_is_killed() -> None:
    scene = Scene(executor_max_memory_bytes=1 << 28)
    scene.executor.bytes_used = 1 << 29
    scene.after(0.01)
    assert str(scene.executor.killed_because).startswith("memory: ")


def test_tasks_behind_a_slow_one_go_to_an_idle_executor(scene: Scene) -> None:
    scene.after(SLOW + 0.01)
    assert list(scene.lane.ready) == [scene.b, scene.c]
    assert scene.session.releases == []


def test_tasks_behind_a_slow_one_go_back_to_their_queue_while_no_executor_is_idle(scene: Scene) -> None:
    scene.occupy_the_other()
    scene.after(SLOW + 0.01)
    assert scene.session.releases == [scene.b, scene.c]
    assert scene.metrics.given_back == 2


def test_ready_tasks_go_back_when_every_executor_is_slow(scene: Scene) -> None:
    scene.occupy_the_other()
    scene.lane.ready.append(claimed("d", scene.time))
    scene.after(SLOW + 0.01)
    assert not scene.lane.ready
    assert len(scene.session.releases) == 3


def test_a_task_whose_lease_cannot_be_kept_is_stopped_before_its_end(scene: Scene) -> None:
    scene.lane.ready.append(waiting := claimed("d", scene.time))
    scene.time.now = scene.a.lease_until - scene.session.margin + 0.01
    scene.monitor._release_expiring(scene.time())
    assert scene.session.releases == [waiting, scene.b, scene.c]
    assert str(scene.executor.killed_because).startswith("lease: ")


def test_an_executor_whose_pipe_is_closed_is_killed_after_a_moment(scene: Scene) -> None:
    scene.executor.closed_pipe_at = scene.time()
    scene.monitor.read_events()
    assert scene.monitor.check_due
    scene.after(CLOSED_PIPE_GRACE / 2)
    assert scene.executor.killed_because is None
    scene.after(CLOSED_PIPE_GRACE)
    assert str(scene.executor.killed_because).startswith("pipes: ")


def test_a_retired_executor_is_told_to_end_and_killed_if_it_does_not(scene: Scene) -> None:
    scene.other.retire()
    scene.after(0.01)
    assert scene.other.told_to_end
    assert scene.other.killed_because is None
    scene.other.late = True
    scene.after(0.01)
    assert scene.other.killed_because


# --- a concurrent executor ---


def test_a_concurrent_executor_that_answers_nothing_is_killed_as_hung() -> None:
    scene = Scene(slots=3)
    scene.after(1.1)
    assert scene.executor.commands == [(ipc.PING, 0)]
    scene.after(SILENT - 0.1)
    assert scene.executor.killed_because is None
    scene.after(0.2)
    assert str(scene.executor.killed_because).startswith("hung: ")


def test_a_task_that_waits_long_for_a_slot_is_given_back() -> None:
    scene = Scene(slots=2)
    scene.after(LONGEST_WAIT)
    assert scene.session.releases == []
    scene.after(0.01)
    assert scene.session.releases == [scene.c]
    assert list(scene.executor.assigned.values()) == [scene.a, scene.b]


def test_a_concurrent_executor_whose_tasks_end_is_not_hung() -> None:
    scene = Scene(slots=3)
    for task in (scene.a, scene.b):
        scene.after(SILENT - 0.1)
        scene.ends(task)
    assert scene.executor.killed_because is None
    assert scene.executor.commands == [(ipc.PING, 0)] * 2


def test_when_tasks_are_stuck_they_alone_pay_for_the_end_of_their_executor() -> None:
    scene = Scene(slots=3)
    scene.time.now += 61
    scene.is_stuck(scene.a.number)
    scene.is_stuck(scene.b.number)
    assert scene.executor.killed_because == "stuck"
    scene.dies()
    assert [report.ended.outcome for report in scene.session.reports] == ["timed_out", "timed_out", "interrupted"]
    assert (scene.session.reports[2].ended.state, scene.session.reports[2].ended.suspicions) == ("pending", None)


def test_when_nothing_says_which_task_is_stuck_each_is_run_again_beside_fewer() -> None:
    scene = Scene(slots=3)
    scene.time.now += 61
    scene.is_stuck(0)
    assert str(scene.executor.killed_because).startswith("hung: ")
    scene.dies()
    assert [report.ended.outcome for report in scene.session.reports] == ["interrupted"] * 3
    assert {report.ended.suspicions for report in scene.session.reports} == {1}


# --- the death of an executor ---


def test_a_dead_executor_costs_the_running_task_a_crash_and_the_others_nothing(scene: Scene) -> None:
    scene.executor.dead = True
    scene.after(0.01)
    [report] = scene.session.reports
    assert (report.claimed, report.ended.outcome, report.ended.state) == (scene.a, "crashed", "retrying")
    assert scene.spans.crashes == [b"a"]
    assert list(scene.lane.ready) == [scene.b, scene.c]
    assert scene.pool.lost_members == [scene.executor]
    assert (scene.metrics.crashes, scene.metrics.errors["executor_crash"]) == (1, 1)


def test_an_outcome_that_arrived_before_the_death_counts(scene: Scene) -> None:
    ended = ipc.EndedAttempt("completed", "completed", b"{}", number=scene.a.number, run_us=5)
    scene.executor.events.append((ipc.OUTCOME, *ended))
    scene.executor.dead = True
    scene.after(0.01)
    assert [report.ended.outcome for report in scene.session.reports] == ["completed"]
    assert scene.metrics.crashes == 0


@pytest.mark.parametrize(
    ("because", "ran", "cancelled", "expected"),
    [
        ("time limit", 60.0, False, ("timed_out", "retrying")),
        ("time limit", 1.0, False, ("interrupted", "pending")),
        ("cancelled", 1.0, True, ("cancelled", "cancelled")),
        ("lease: it was lost", 1.0, False, ("interrupted", "pending")),
        ("the worker stops", 1.0, False, ("interrupted", "pending")),
        ("memory: it used too much", 1.0, False, ("crashed", "retrying")),
        ("pipes: the handler wrote into them", 1.0, False, ("crashed", "retrying")),
    ],
)
def test_why_an_executor_was_killed_decides_the_outcome(
    scene: Scene, because: str, ran: float, cancelled: bool, expected: tuple[str, str]
) -> None:
    scene.a.cancelled = cancelled
    scene.executor.kill(because)
    scene.time.now += ran
    scene.monitor.reap(cast("Any", scene.executor))
    [report] = scene.session.reports
    assert (report.ended.outcome, report.ended.state) == expected


# --- commands ---


def test_cancelling_a_task_that_has_not_begun_returns_it(scene: Scene) -> None:
    scene.monitor.cancel(b"b")
    assert scene.session.releases == [scene.b]
    assert list(scene.lane.ready) == [scene.c]
    scene.monitor.cancel(b"c")
    assert scene.session.releases == [scene.b, scene.c]
    assert not scene.lane.ready


def test_cancelling_a_running_task_signals_it_once_and_kills_it_after_the_grace(scene: Scene) -> None:
    for _ in range(2):
        scene.monitor.cancel(b"a")
    assert scene.executor.signals == [CANCEL_SIGNAL]
    scene.after(GRACE + 0.1)
    assert scene.executor.killed_because == "cancelled"


def test_a_running_task_whose_lease_was_lost_is_killed_and_counted_once(scene: Scene) -> None:
    for _ in range(2):
        scene.monitor.abandon(scene.a)
    assert str(scene.executor.killed_because).startswith("lease: ")
    assert scene.metrics.leases_lost == 1


def test_a_waiting_task_whose_lease_was_lost_is_dropped(scene: Scene) -> None:
    scene.monitor.abandon(scene.b)
    assert list(scene.lane.ready) == [scene.c]
    scene.monitor.abandon(scene.c)
    assert not scene.lane.ready
    assert scene.executor.killed_because is None


def test_a_drain_returns_what_has_not_begun_and_kills_the_rest_after_the_grace(scene: Scene) -> None:
    scene.monitor.drain(scene.time(), grace_over=False)
    assert scene.session.releases == [scene.b, scene.c]
    killed = [executor.killed_because for executor in scene.executors]
    assert killed == [None, None]
    scene.monitor.drain(scene.time(), grace_over=True)
    killed = [executor.killed_because for executor in scene.executors]
    assert killed == ["the worker stops", None]
