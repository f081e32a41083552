"""How a worker fills its concurrent executors, and keeps tasks that may have killed one apart from the others."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.worker.engine.claimed_task import SETTLED, ClaimedTask
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.prefetch import RESERVE_SECONDS
from tests.support.queue_names import claimed_queues
from tests.unit.worker.fakes import FakeExecutor, FakePool, FakeTime, claimed, lanes_of, numbered

SLOTS = 64


class Scene:
    """A lane with this many concurrent executors, all idle."""

    def __init__(self, executors: int = 1) -> None:
        self.time = FakeTime()
        self.executors = [FakeExecutor(self.time, pid, SLOTS) for pid in range(1, executors + 1)]
        self.pool = FakePool(*self.executors)
        self.lane = lanes_of(self.pool, self.time).concurrent
        self.noted: list[ClaimedTask] = []

    def gets(self, count: int, **about: Any) -> list[ClaimedTask]:
        tasks = [claimed(str(number), self.time, concurrent=True, **about) for number in range(count)]
        self.lane.ready += tasks
        taken = [task for executor in self.executors for task in executor.assigned.values()]
        numbered([*taken, *tasks])
        self.lane.hand_out(self._note)
        return tasks

    def ends_steadily(self, per_second: int) -> int:
        """So many tasks end per second for a while; returns how many the lane claims ahead then."""
        for _ in range(100):
            self.time.now += 0.01
            for _ in range(per_second // 100):
                self.lane.on_ended(claimed("ended", self.time), 0.0)
        return self.lane.free() - SLOTS * len(self.executors)

    def _note(self, task: ClaimedTask) -> bool:
        self.noted.append(task)
        return True

    def held(self) -> list[int]:
        return [len(executor.assigned) for executor in self.executors]


def test_tasks_are_spread_evenly() -> None:
    scene = Scene(executors=2)
    scene.gets(50)
    assert scene.held() == [25, 25]


def test_no_executor_gets_more_than_it_has_slots_while_nothing_is_known() -> None:
    scene = Scene()
    assert scene.lane.free() == SLOTS
    scene.gets(SLOTS + 5)
    assert (scene.held(), len(scene.lane.ready)) == ([SLOTS], 5)
    assert scene.lane.free() == 0


def test_as_many_are_claimed_ahead_as_end_in_a_moment() -> None:
    scene = Scene(executors=2)
    ahead = scene.ends_steadily(int(10 / RESERVE_SECONDS))
    assert ahead == pytest.approx(10, abs=1)
    scene.gets(2 * SLOTS + 6)
    assert scene.held() == [SLOTS + 3, SLOTS + 3]
    assert scene.lane.free() == ahead - 6


def test_no_more_than_half_of_the_slots_are_claimed_ahead() -> None:
    assert Scene().ends_steadily(100_000) == SLOTS // 2


def test_nothing_is_claimed_ahead_when_tasks_do_not_end() -> None:
    scene = Scene()
    scene.ends_steadily(1000)
    scene.time.now += 1
    assert scene.lane.free() == SLOTS


def test_free_slots_come_before_those_that_will_be_free() -> None:
    scene = Scene(executors=2)
    scene.ends_steadily(100_000)
    scene.gets(2 * SLOTS)
    scene.executors[0].assigned.clear()
    scene.gets(10)
    assert scene.held() == [10, SLOTS]


def test_no_suspect_is_assigned_ahead_of_its_start() -> None:
    scene = Scene()
    scene.ends_steadily(100_000)
    scene.gets(SLOTS)
    scene.gets(2, suspicions=1)
    assert scene.held() == [SLOTS]


def test_a_lane_without_executors_claims_one_at_a_time() -> None:
    assert Scene(executors=0).lane.free() == 1


@pytest.mark.parametrize(("suspicions", "together"), [(1, SLOTS // 2), (2, SLOTS // 4), (6, 1), (9, 1)])
def test_after_each_death_half_as_many_suspects_run_together(suspicions: int, together: int) -> None:
    scene = Scene()
    tasks = scene.gets(SLOTS, suspicions=suspicions)
    assert scene.held() == [together]
    assert scene.noted == tasks[:together], "their start is recorded before it happens"


def test_slots_of_a_retiring_executor_are_not_claimed_for() -> None:
    scene = Scene(executors=2)
    scene.gets(2 * SLOTS)
    scene.executors[0].retire()
    assert scene.lane.free() == 0
    scene.executors[0].assigned.clear()
    assert scene.lane.free() == 0


def test_one_that_has_crashed_by_itself_runs_alone() -> None:
    scene = Scene(executors=2)
    scene.gets(3, crashes=1)
    assert scene.held() == [1, 1]


def test_suspects_and_others_do_not_run_together() -> None:
    scene = Scene(executors=2)
    scene.gets(1, suspicions=1)
    others = scene.gets(SLOTS)
    first, second = (list(executor.assigned.values()) for executor in scene.executors)
    assert [len(first), len(second)] in ([1, SLOTS], [SLOTS, 1])
    apart = first if len(first) == 1 else second
    assert not set(others) & set(apart)


def test_a_suspect_that_finds_no_executor_of_its_own_asks_for_one_more() -> None:
    scene = Scene()
    scene.gets(1)
    [suspect] = scene.gets(1, suspicions=1)
    assert (scene.held(), list(scene.lane.ready), scene.pool.isolating) == ([1], [suspect], True)
    scene.executors[0].assigned.clear()
    scene.gets(0)
    assert (scene.held(), scene.pool.isolating) == ([1], False)


def test_what_may_have_crashed_an_executor_gets_an_empty_one_before_others_that_waited_longer() -> None:
    scene = Scene()
    others = scene.gets(SLOTS + 5)[SLOTS:]
    [apart] = scene.gets(1, suspicions=1)
    scene.executors[0].assigned.clear()
    scene.gets(0)
    assert list(scene.executors[0].assigned.values()) == [apart]
    assert list(scene.lane.ready) == others


def test_a_suspect_that_has_run_for_long_holds_up_no_other() -> None:
    scene = Scene()
    scene.gets(1, suspicions=6)
    scene.time.now += SETTLED + 1
    scene.gets(3)
    assert scene.held() == [4]


# --- tasks from the other lane ---


class Mixed:
    """A worker with one executor of each kind, all idle."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.pool = FakePool(FakeExecutor(self.time, 1), FakeExecutor(self.time, 2, SLOTS))
        self.lanes = lanes_of(self.pool, self.time)

    def comes(self, lane: str, concurrent: bool, **about: Any) -> bool:
        task = claimed("stray", self.time, concurrent=concurrent, **about)
        task.lane = lane
        return self.lanes.add(task)


@pytest.mark.parametrize(("lane", "concurrent"), [("", True), ("+", False)])
def test_a_task_from_the_other_lane_runs_here_while_there_is_room(lane: str, concurrent: bool) -> None:
    scene = Mixed()
    place = scene.lanes.concurrent if concurrent else scene.lanes.serial
    room = place.free()
    assert room
    assert [scene.comes(lane, concurrent) for _ in range(room + 2)] == [True] * room + [False] * 2
    assert len(place.ready) == room


def test_a_lane_whose_tasks_found_no_room_pauses_its_claims() -> None:
    scene = Mixed()
    while scene.comes("+", concurrent=False):
        pass
    lanes = scene.lanes
    claims = LaneClaims("w", claimed_queues({"normal": 1}), "+")
    assert (lanes.concurrent.claim_size(claims, False, scene.time()), bool(lanes.concurrent.free())) == (None, False)
    scene.time.now += lanes.concurrent.pause
    assert lanes.concurrent.free()


def test_a_suspect_that_has_to_run_alone_waits_for_a_serial_executor() -> None:
    scene = Mixed()
    while scene.comes("+", concurrent=False):
        pass
    assert scene.comes("+", concurrent=False, suspicions=9)


@pytest.mark.parametrize("about", [{}, {"suspicions": 9}])
def test_a_task_from_the_other_lane_waits_for_the_executors_of_its_queue(about: dict[str, Any]) -> None:
    time = FakeTime()
    executors = [FakeExecutor(time, 1), FakeExecutor(time, 2)]
    lanes = lanes_of(FakePool(*executors), time, {"high": 1})
    first, second = numbered([claimed("first", time, queue=b"high"), claimed("second", time, queue=b"high", **about)])
    second.lane = "+"
    for task in (first, second):
        assert lanes.add(task)
        lanes.serial.hand_out(lambda _: True)
    assert (sum(len(each.assigned) for each in executors), list(lanes.serial.ready)) == (1, [second])
    executors[0].assigned.clear()
    lanes.serial.hand_out(lambda _: True)
    assert [second] in [list(each.assigned.values()) for each in executors]


def test_a_queue_name_that_is_not_text_disturbs_no_lane() -> None:
    task = claimed("damaged", FakeTime(), queue=b"\xff\xfe")
    lanes_of(FakePool(), FakeTime()).serial.on_ended(task, 0.01)
    assert task.queue_name == "\ufffd\ufffd"


def test_with_several_partitions_a_parked_claim_stays_for_a_moment_without_room() -> None:
    scene = Mixed()
    lane, claims = scene.lanes.concurrent, LaneClaims("w", claimed_queues({"normal": 1}), "+")
    claims.parked, claims.work_likely = True, False
    lane.stays_parked = 0.1
    assert lane.claim_size(claims, False, scene.time()) is None, "it has room, and waits"
    for _ in range(lane.free()):
        scene.comes("+", concurrent=True)
    assert lane.claim_size(claims, False, scene.time()) is None, "another partition's tasks keep it busy for a moment"
    assert lane.claim_size(claims, False, scene.time() + 0.1) == 0, "others are to start what comes there"
