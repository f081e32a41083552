"""Handlers that go on as new tasks, in local mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmq import LocalClient, continue_as_new
from tests.features.durable.handlers import calls


@pytest.fixture
def local() -> LocalClient:
    return LocalClient(["tests.features.durable.handlers"])


@pytest.mark.parametrize("kind", ["rounds", "rounds-async"])
def test_each_round_has_its_own_steps_and_data(local: LocalClient, tmp_path: Path, kind: str) -> None:
    task = local.submit(kind, {"folder": str(tmp_path), "last": 3}).task_id
    assert local.result(task) == {"number": 3, "calls": 1, "said": None}
    assert [calls(tmp_path, f"round-{number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert [each.outcome for each in local.get(task).attempts] == ["interrupted", "interrupted", "completed"]


def test_data_that_the_handler_does_not_take_is_an_error(local: LocalClient) -> None:
    found = local.get(local.submit("wrong-round", {}, max_retries=0).task_id)
    assert found.error
    assert found.error.message.startswith("continue_as_new got data that its handler does not take")


def test_outside_of_a_task_it_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="LocalClient"):
        continue_as_new({})
