"""What the loop claims, starts, reports and gives back, pass by pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from firmq.shared.config.settings import Settings
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.errors import StoreUnavailable
from firmq.shared.stores.task_types import TaskType
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.loop import GATHER, IDLE_TICK, PAUSE, REPORT_GRACE, SHORTEST_WAIT, TICK, Engine
from firmq.worker.engine.notifications import COMMAND, DIRECT_DISPATCH, PATIENCE, WAKEUP
from firmq.worker.engine.redis_session import MOST_AT_ONCE, Report, SyncResult
from firmq.worker.executors.crash_reports import CrashReports
from firmq.worker.executors.ipc import EndedAttempt
from firmq.worker.executors.monitor import ExecutorMonitor
from firmq.worker.metrics import WorkerMetrics
from tests.unit.worker.fakes import (
    FakeExecutor,
    FakeNotifications,
    FakePool,
    FakeSelector,
    FakeSession,
    FakeSpans,
    FakeTime,
    Found,
    claimed,
    close,
    lanes_of,
    link_to,
)

MAX_CRASHES = 3


class Scene:
    """An engine with two idle executors, whose task types are published."""

    def __init__(self, **settings: Any) -> None:
        self.time = FakeTime()
        self.executors = [FakeExecutor(self.time, pid) for pid in (1, 2)]
        self.pool, self.session = FakePool(*self.executors), FakeSession(self.time)
        self.notifications, self.selector = FakeNotifications(), FakeSelector(self.time)
        self.heartbeat_due = threading.Event()
        about, self.metrics = Settings(max_crashes=MAX_CRASHES, **settings), WorkerMetrics("w")
        pool: Any = self.pool
        reports = CrashReports("w", RetryPolicy(), MAX_CRASHES, pool)
        lanes = lanes_of(self.pool, self.time, about.claimed_queue_executors, MAX_CRASHES)
        self.link = link_to(self.session, self.notifications)
        self.lane, self.claims = lanes.serial, self.link.of(lanes.serial)
        make: Any = ExecutorMonitor
        surroundings: tuple[Any, Any] = (self.selector, self.heartbeat_due)
        monitor = make(about, pool, lanes, self.session.margin, reports, self.metrics, FakeSpans(), monotonic=self.time)
        self.engine = Engine(about, [self.link], pool, monitor, self.metrics, *surroundings, monotonic=self.time)
        self.engine.on_types_published(self.link)

    def finds(self, *tasks: ClaimedTask, **about: Any) -> None:
        """The next sync claims these tasks."""
        found = {name: about.pop(name) for name in ("again_in", "ask_again") if name in about}
        self.session.answers.append(Found(SyncResult(claimed=list(tasks), **about), **found))

    def starts(self, *tasks: ClaimedTask) -> None:
        """The worker claims these tasks, and executors begin the first of theirs."""
        self.finds(*tasks)
        self.claims.work_likely = True
        self.engine.step()
        for executor in self.executors:
            if executor.assigned:
                executor.begin()

    def hears(self, kind: str, message: bytes | None) -> None:
        self.notifications.received.append((kind, message))
        self.engine.step()

    def given(self) -> list[list[bytes]]:
        return [[task.id for task in executor.assigned.values()] for executor in self.executors]

    def report(
        self, task: ClaimedTask, outcome: str = "completed", state: str = "completed", version: str | None = None
    ) -> None:
        self.session.report(Report(task, EndedAttempt(outcome, state, b"", run_us=100_000, version=version)))


@pytest.fixture
def make_scene() -> Iterator[Any]:
    made: list[Scene] = []

    def make(**settings: Any) -> Scene:
        made.append(Scene(**settings))
        return made[-1]

    yield make
    for each in made:
        close(each.engine.wake_write, each.engine._wake_read)


@pytest.fixture
def scene(make_scene: Any) -> Scene:
    return cast("Scene", make_scene())


# --- claiming and starting ---


def test_nothing_is_claimed_before_the_gateway_knows_the_types(scene: Scene) -> None:
    scene.link.types_known = False
    scene.engine.step()
    assert scene.session.sizes == []
    scene.engine.on_types_published(scene.link)
    scene.engine.step()
    assert scene.session.sizes == [2]


def test_claimed_tasks_go_to_the_emptiest_executors(scene: Scene) -> None:
    scene.starts(claimed("a"), claimed("b"))
    assert scene.given() == [[b"a"], [b"b"]]


def test_no_more_than_a_bounded_number_is_claimed_at_once(scene: Scene) -> None:
    for executor in range(3, 20):
        scene.pool.members.append(FakeExecutor(scene.time, executor))
    scene.lane.prefetch.learn(0.00001)
    scene.engine.step()
    assert scene.session.sizes == [MOST_AT_ONCE]


def test_a_task_has_its_own_time_limit_or_that_of_its_type_or_the_general_one(
    make_scene: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scene = make_scene(task_timeout=100)
    scene.pool.types = {"known": TaskType(name="known", schema={}, timeout=7.0)}
    own = claimed("own", timeout=b"3.5")
    typed, general, corrupt = claimed("typed", type=b"known"), claimed("general"), claimed("corrupt", timeout=b"soon")
    for tasks in ((own, typed), (general, corrupt)):
        scene.starts(*tasks)
        for executor in scene.executors:
            executor.assigned.clear()
    assert [each.limit for each in (own, typed, general, corrupt)] == [3.5, 7.0, 100, 100]
    assert "task corrupt: time limit b'soon' is not a number" in caplog.text


def test_a_worker_that_found_nothing_claims_again_only_when_it_is_woken(scene: Scene) -> None:
    for _ in range(5):
        scene.engine.step()
    assert scene.session.sizes == [2]
    assert scene.notifications.listening == [True] * 5
    scene.hears(WAKEUP, b"normal")
    assert scene.session.sizes == [2, 2]


def lanes_asked(scene: Scene, message: bytes | None) -> list[str]:
    """The suffixes of the lanes that this wake-up makes the worker claim from."""
    scene.time.now += PATIENCE
    before = [scene.link.of(lane).asked_at for lane in scene.engine.lanes]
    scene.hears(WAKEUP, message)
    return [
        lane.suffix for lane, at in zip(scene.engine.lanes, before, strict=True) if scene.link.of(lane).asked_at != at
    ]


def test_an_idle_worker_that_is_not_woken_claims_from_its_lanes_in_turns(scene: Scene) -> None:
    scene.engine.step()
    assert [lanes_asked(scene, None) for _ in range(4)] == [[""], ["+"], [""], ["+"]]


def test_an_idle_worker_whose_wake_up_may_be_lost_claims_from_all_lanes(scene: Scene) -> None:
    scene.engine.step()
    assert lanes_asked(scene, b"") == ["", "+"]


def test_a_busy_lane_does_not_keep_an_idle_one_from_its_turn(scene: Scene) -> None:
    scene.starts(claimed("a"), claimed("b"))
    assert [lanes_asked(scene, None) for _ in range(2)] == [["+"], ["+"]]


def test_a_wake_up_that_reaches_a_busy_worker_is_passed_on_and_no_further_one_awaited(scene: Scene) -> None:
    scene.starts(claimed("a"), claimed("b"))
    scene.hears(WAKEUP, b"normal")
    assert scene.session.notified == ["normal"]
    assert scene.notifications.listening[-1] is False


def test_a_wake_up_for_a_queue_without_a_free_slot_is_passed_on(make_scene: Any) -> None:
    scene = make_scene(queue_executors={"low": 1})
    scene.starts(claimed("a", queue=b"low"))
    scene.hears(WAKEUP, b"low")
    assert scene.session.notified == ["low"]


def test_a_worker_without_capacity_withdraws_its_parked_claim(scene: Scene) -> None:
    scene.engine.step()
    assert scene.claims.parked
    for executor in scene.executors:
        executor.assign([claimed(str(executor.pid))])
        executor.begin()
    scene.engine.step()
    assert scene.session.sizes == [2, 0]


def test_a_limit_that_allows_a_start_later_is_asked_again_then(scene: Scene) -> None:
    scene.finds(again_in=0.3)
    began = scene.time()
    while len(scene.session.sizes) < 2:
        scene.engine.step()
    assert scene.time() - began == pytest.approx(0.3)
    scene.finds(again_in=0.0)
    scene.claims.work_likely = True
    scene.engine.step()
    began = scene.time()
    scene.engine.step()
    assert scene.time() - began == pytest.approx(SHORTEST_WAIT)


def test_a_direct_dispatch_starts_in_the_pass_in_which_it_arrives(scene: Scene) -> None:
    scene.engine.step()
    scene.session.dispatched[b"message"] = SyncResult(claimed=[claimed("a")])
    scene.hears(DIRECT_DISPATCH, b"message")
    assert scene.given() == [[b"a"], []]


# --- tasks that may crash a worker ---


def test_a_suspect_starts_alone_in_an_idle_executor_after_its_start_is_recorded(scene: Scene) -> None:
    scene.lane.prefetch.learn(0.00001)
    suspect = claimed("suspect", losses=1)
    scene.starts(suspect, claimed("a"), claimed("b"))
    assert scene.session.noted == [suspect]
    assert [b"suspect"] in scene.given()
    assert sorted(map(len, scene.given())) == [1, 2]


def test_a_suspect_whose_lease_was_lost_meanwhile_does_not_start(scene: Scene) -> None:
    scene.session.lease_holds = False
    scene.starts(claimed("suspect", losses=1))
    assert scene.given() == [[], []]


def test_while_a_last_try_waits_no_other_suspect_starts(scene: Scene) -> None:
    scene.starts(claimed("suspect", losses=1))
    scene.finds(claimed("last", crashes=MAX_CRASHES - 1))
    scene.claims.work_likely = True
    scene.engine.step()
    assert [task.id for task in scene.lane.ready] == [b"last"]


# --- reporting ---


def test_an_outcome_is_reported_at_once_while_the_worker_has_time(scene: Scene) -> None:
    scene.engine.step()
    scene.report(claimed("a"))
    scene.engine.step()
    assert [report.claimed.id for report in scene.session.sent] == [b"a"]
    assert scene.metrics.completions["other", "completed"] == 1


def test_outcomes_are_collected_for_a_moment_while_all_executors_have_more(scene: Scene) -> None:
    scene.lane.prefetch.seconds = 0.01
    scene.starts(*map(claimed, "abcd"))
    assert [len(each) for each in scene.given()] == [2, 2]
    scene.report(claimed("e"))
    assert not scene.engine._report_due(scene.link, scene.time())
    scene.time.now += GATHER
    assert scene.engine._report_due(scene.link, scene.time())


def test_leases_are_extended_three_times_within_each(scene: Scene) -> None:
    scene.starts(claimed("a"))
    while len(scene.session.extended) < 3:
        scene.engine.step()
        scene.claims.work_likely = False
    [running] = scene.session.extended[-1]
    assert running.id == b"a"
    assert running.noted, "a crash is charged to it"
    assert scene.time() - 1000.0 == pytest.approx(2 * scene.session.lease / 3, abs=2 * TICK)


def test_a_task_that_no_version_here_can_run_asks_for_a_heartbeat(scene: Scene) -> None:
    scene.report(claimed("a"), "refused", "pending", version="1-x")
    scene.engine.step()
    assert not scene.heartbeat_due.is_set()
    scene.report(claimed("b"), "refused", "pending")
    scene.engine.step()
    assert scene.heartbeat_due.is_set()


def test_refused_outcomes_and_lost_leases_are_counted_once_for_each_task(scene: Scene) -> None:
    task = claimed("a")
    scene.session.answers += [Found(SyncResult(refused=[task])), Found(SyncResult(lost=[task]))]
    for _ in range(2):
        scene.claims.work_likely = True
        scene.engine.step()
    assert scene.metrics.leases_lost == 1


# --- trouble with Redis ---


def test_an_outage_loses_nothing_and_is_tried_again_after_a_pause(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.session.answers += [StoreUnavailable("away"), StoreUnavailable("away")]
    scene.report(claimed("a"))
    scene.engine.step()
    listened = len(scene.notifications.listening)
    began = scene.time()
    while not scene.session.sent:
        scene.engine.step()
    assert scene.time() - began >= 2 * PAUSE
    assert len(scene.notifications.listening) <= listened + 1, "nothing is awaited from a Redis that is away"
    assert scene.metrics.errors["redis"] == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_the_first_sync_after_an_outage_asks_for_the_leases_of_all_tasks(scene: Scene) -> None:
    """A Redis that was killed can have forgotten claims; their tasks run beside others that it lets start."""
    scene.starts(claimed("a"))
    began, extended = scene.time(), len(scene.session.extended)
    scene.session.answers.append(StoreUnavailable("away"))
    scene.claims.work_likely = True
    for _ in range(50):
        scene.engine.step()
        if len(scene.session.extended) > extended:
            break
    assert scene.metrics.errors["redis"] == 1
    assert [task.id for task in scene.session.extended[-1]] == [b"a"]
    assert scene.time() - began < scene.session.lease / 6


def test_a_corrupt_record_holds_up_no_other_outcome_and_no_lease(scene: Scene) -> None:
    scene.starts(claimed("a"))
    scene.session.answers.append(ResponseError("WRONGTYPE"))
    scene.report(claimed("b"))
    scene.engine.step()
    assert scene.session.one_by_one == 1
    assert [task.id for task in scene.session.extended[-1]] == [b"a"]


# --- commands and the end ---


def test_a_command_cancels_a_task_or_looks_for_work(scene: Scene) -> None:
    scene.starts(claimed("a"))
    scene.hears(COMMAND, b"cancel a")
    assert scene.executors[0].signals
    claims = len(scene.session.sizes)
    scene.hears(COMMAND, b"look")
    assert len(scene.session.sizes) == claims + 1


def test_a_drain_returns_what_has_not_begun_and_ends_when_the_rest_is_reported(scene: Scene) -> None:
    scene.starts(claimed("a"))
    scene.lane.ready.append(claimed("waiting", scene.time))
    scene.hears(COMMAND, b"drain")
    scene.engine.step()
    assert [task.id for task in scene.session.returned] == [b"waiting"]
    assert scene.heartbeat_due.is_set(), "that it drains is published"
    assert not scene.engine.finished()
    scene.executors[0].assigned.clear()
    scene.claims.unanswered = False
    assert scene.engine.finished()


def test_a_drain_fetches_and_returns_the_tasks_of_a_claim_without_an_answer(scene: Scene) -> None:
    scene.session.answers.append(StoreUnavailable("away"))
    scene.engine.step()
    scene.engine.drain(10.0)
    scene.finds(claimed("late"))
    while not scene.engine.finished():
        scene.engine.step()
    assert scene.session.sizes[1] == 0
    assert [task.id for task in scene.session.returned] == [b"late"]


def test_a_drain_without_redis_ends_after_a_grace(scene: Scene) -> None:
    scene.session.answers += [StoreUnavailable("away")] * 100
    scene.report(claimed("a"))
    scene.engine.drain(0.0)
    began = scene.time()
    while not scene.engine.finished():
        scene.engine.step()
    assert REPORT_GRACE <= scene.time() - began <= REPORT_GRACE + 1


def test_a_second_drain_only_shortens_the_grace(scene: Scene) -> None:
    scene.engine.drain(10.0)
    scene.engine.drain(60.0)
    assert scene.engine.draining_until == scene.time() + 10.0
    scene.engine.drain(0.0)
    assert scene.engine.draining_until == scene.time()


def test_an_idle_worker_sleeps_between_its_checks(scene: Scene) -> None:
    scene.engine.step()
    scene.engine.step()
    scene.selector.waits.clear()
    for _ in range(4):
        scene.engine.step()
    assert scene.selector.waits == pytest.approx([IDLE_TICK] * 4)
