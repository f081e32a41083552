"""States and ids."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain import task_data
from firmq.shared.domain.task import ENDED, RQ_STATUS, TRANSITIONS, WAITING, TaskState, new_task_id
from firmq.shared.errors import CorruptRecord


def test_every_state_has_its_transitions_and_its_name_in_rq() -> None:
    assert set(TRANSITIONS) == set(RQ_STATUS) == set(TaskState)


def test_an_ended_task_moves_only_when_a_person_retries_or_restores_it() -> None:
    for state in ENDED:
        assert TRANSITIONS[state] <= {TaskState.PENDING, TaskState.BLOCKED, TaskState.SCHEDULED}
    assert {state for state in ENDED if TRANSITIONS[state]} == {TaskState.FAILED, TaskState.CANCELLED}


def test_every_waiting_task_can_be_cancelled_and_can_expire() -> None:
    for state in WAITING:
        assert {TaskState.CANCELLED, TaskState.EXPIRED} <= TRANSITIONS[state]


def test_ids_are_ulids_that_sort_by_time() -> None:
    ids = [new_task_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", each) for each in ids)
    assert [each[:10] for each in ids] == sorted(each[:10] for each in ids)


@given(st.text(max_size=50))
def test_data_comes_back_from_rqs_call_as_the_text_that_went_in(text: str) -> None:
    data = json.dumps(text)
    assert task_data.decode("a.type-1", task_data.encode("a.type-1", data).encode()) == data.encode()


@given(st.binary(max_size=60))
def test_what_is_no_call_of_ours_is_a_corrupt_record_and_nothing_else(call: bytes) -> None:
    try:
        task_data.decode("process", call)
    except CorruptRecord:
        pass
    else:
        raise AssertionError("it was read")


def test_data_that_the_format_before_stored_is_read() -> None:
    call = b'["shared.domain.task_data.refuse",null,["process",{"order":7}],{}]'
    assert task_data.decode("process", call) == b'{"order": 7}'


def test_another_function_in_the_record_is_refused() -> None:
    call = b'["os.system",null,["process","rm -rf /"],{}]'
    with pytest.raises(CorruptRecord, match=r"os\.system"):
        task_data.decode("process", call)
