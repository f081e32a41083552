"""Who gets how much of a limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain.limit_shares import WHOLE, Use, parts_for, slots_for

USES = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        Use,
        slots=st.integers(0, 9),
        part=st.sampled_from([0, WHOLE // 2]),
        running=st.integers(0, 9),
        waits=st.booleans(),
    ),
    min_size=1,
)


def use(slots: int = 0, running: int = 0, waits: bool = False, part: int = 0) -> Use:
    return Use(slots=slots, part=part, running=running, waits=waits)


@given(USES, st.integers(0, 12), st.integers(0, 9))
def test_all_slots_are_given_and_no_more(uses: dict[int, Use], concurrency: int, turn: int) -> None:
    found = slots_for(uses, concurrency, turn)
    assert sum(found.values()) == concurrency
    assert all(slots >= 0 for slots in found.values())


@given(USES, st.integers(0, 12), st.integers(0, 9))
def test_who_waits_shares_evenly_and_goes_before_who_does_not(
    uses: dict[int, Use], concurrency: int, turn: int
) -> None:
    found = slots_for(uses, concurrency, turn)
    waiting = [found[number] for number, each in uses.items() if each.waits]
    if waiting:
        assert max(waiting) - min(waiting) <= 1
        assert all(found[number] <= each.running for number, each in uses.items() if not each.waits)


def test_one_slot_is_served_to_each_in_turn() -> None:
    uses = {number: use(waits=True) for number in range(3)}
    turns = [slots_for(uses, 1, turn) for turn in range(3)]
    assert [max(found, key=found.__getitem__) for found in turns] == [0, 1, 2]


def test_slots_that_nobody_needs_stay() -> None:
    assert slots_for({0: use(slots=4), 1: use(slots=1)}, 5, 0) == {0: 4, 1: 1}
    assert slots_for({0: use(slots=4), 1: use(slots=1)}, 5, 1) == {0: 4, 1: 1}


@given(USES, st.floats(1, 8), st.integers(0, 9))
def test_a_part_of_a_rate_lets_at_least_one_task_start(uses: dict[int, Use], burst: float, turn: int) -> None:
    found = parts_for(uses, burst, turn)
    assert sum(found.values()) <= WHOLE
    assert all(part * burst >= WHOLE for number, part in found.items() if part and uses[number].waits)


def test_a_rate_goes_to_who_waits() -> None:
    assert parts_for({0: use(part=WHOLE), 1: use(waits=True)}, 1.0, 0) == {0: 0, 1: WHOLE}
    assert parts_for({0: use(waits=True), 1: use(waits=True)}, 2.0, 0) == {0: WHOLE // 2, 1: WHOLE // 2}
    assert parts_for({0: use(waits=True), 1: use(waits=True)}, 1.9, 1) == {0: 0, 1: WHOLE}
