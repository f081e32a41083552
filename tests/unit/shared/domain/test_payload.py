"""References to payloads, which no value of a client or handler can pass for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain import task_data
from firmq.shared.domain.payload import PayloadReference, decode_result, encode_result, task_of
from firmq.shared.errors import CorruptRecord

REFERENCE = PayloadReference.to("task-1", b'"large"')
JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def test_a_reference_comes_back_from_rqs_call_and_from_a_result() -> None:
    call = task_data.encode("process", REFERENCE)
    assert json.loads(call)[2] == ["process", None], "tools of RQ can read it"
    assert task_data.decode("process", call.encode()) == REFERENCE
    assert task_data.may_refer(call.encode())
    assert decode_result(encode_result(REFERENCE)) == REFERENCE


@given(JSON | st.just(REFERENCE.fields) | st.just([None, REFERENCE.fields]))
def test_no_value_is_taken_for_a_reference(value: Any) -> None:
    text = json.dumps(value)
    call = task_data.encode("process", text).encode()
    assert task_data.decode("process", call) == text.encode()
    assert task_data.decode("process", b" " + call) == text.encode(), "as RQ's tools may have written it"
    assert not task_data.may_refer(call)
    assert decode_result(encode_result(text.encode())) == text.encode()


@pytest.mark.parametrize(
    "fields",
    [
        None,
        7,
        {"bytes": 1},
        {"payload": 7, "bytes": 1},
        {"payload": f"../../etc.{'0' * 64}", "bytes": 1},
        {"payload": f"task.{'0' * 63}", "bytes": 1},
        {"payload": f"task.{'0' * 64}", "bytes": "many"},
    ],
)
def test_an_unreadable_reference_is_a_corrupt_record(fields: Any) -> None:
    with pytest.raises(CorruptRecord):
        PayloadReference.read(fields)
    with pytest.raises((CorruptRecord, ValueError)):
        decode_result(b"@" + base64.b64encode(json.dumps(fields).encode()))


def test_changed_content_is_a_corrupt_record() -> None:
    assert REFERENCE.check(b'"large"') == b'"large"'
    with pytest.raises(CorruptRecord, match="SHA-256 differs"):
        REFERENCE.check(b'"other"')


def test_an_object_names_its_task() -> None:
    assert task_of(REFERENCE.name) == "task-1"
    assert task_of(f"{REFERENCE.name}.0123abcd") == "task-1", "an unfinished copy"
    for other in ("firmq", f"{REFERENCE.name}.0123", f"../{REFERENCE.name}", "ab/notes.txt"):
        assert task_of(other) is None
