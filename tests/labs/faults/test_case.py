"""A run is read back as it is, also by way of a gateway that cannot answer at once."""

from __future__ import annotations

import pytest

from tests.labs.faults import case
from tests.labs.faults.clients import NO_ANSWER, Answer


def test_a_task_that_cannot_be_read_at_once_is_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([Answer(503, {}), Answer(NO_ANSWER, {}), Answer(200, {"task_id": "t"})])
    monkeypatch.setattr(case, "call", lambda *_: next(answers))
    assert case.answered("gateway", "/tasks/t", pause=0).body == {"task_id": "t"}


def test_a_gateway_that_cannot_read_at_all_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "call", lambda *_: Answer(503, {}))
    with pytest.raises(AssertionError, match="not answered"):
        case.answered("gateway", "/tasks/t", pause=0)
