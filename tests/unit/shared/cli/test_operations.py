"""Times that people give on the command line, and bulk actions that a command waits for."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from firmq.shared.cli.operations import delete_dead, pause_end
from firmq.shared.cli.output import Output
from firmq.shared.client import NotInTime

NOON = datetime(2030, 1, 31, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("14:00", "2030-01-31T14:00:00+01:00"),
        ("11:30", "2030-02-01T11:30:00+01:00"),
        ("14:00Z", "2030-01-31T14:00:00+00:00"),
        ("2030-03-01T09:00:00Z", "2030-03-01T09:00:00+00:00"),
    ],
)
def test_a_time_of_day_is_the_next_one(text: str, end: str) -> None:
    assert pause_end(text, NOON) == datetime.fromisoformat(end)


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="soon"):
        pause_end("soon", NOON)


class BulkActions:
    """A bulk action that has processed so many tasks each time it is asked for; it ends with the fifth."""

    def __init__(self, count: int, done: Iterable[int]) -> None:
        self.count = count
        self.done = iter(done)
        self.started = False

    def preview(self, action: str, **tasks: Any) -> Any:
        return SimpleNamespace(count=self.count)

    def start(self, action: str, **how: Any) -> Any:
        self.started = True
        return SimpleNamespace(action_id="a1", what="status=failed", done=0, skipped=0)

    def get(self, action_id: str) -> Any:
        return SimpleNamespace(action_id=action_id, done=next(self.done), skipped=0, total=5)

    def wait(self, action_id: str, timeout: float) -> Any:
        if (found := self.get(action_id)).done < 5:
            raise NotInTime(f"bulk action {action_id} has not ended: {found.done} of 5 done")
        return found


def delete_all(actions: BulkActions) -> str:
    client: Any = SimpleNamespace(bulk_actions=actions)
    stream = io.StringIO()
    assert (
        delete_dead(client, Namespace(all=True, ids=[], task_type=None, partition=None), Output(stream, as_json=False))
        == 0
    )
    return stream.getvalue()


def test_an_action_is_waited_for_as_long_as_it_makes_progress() -> None:
    assert delete_all(BulkActions(5, [1, 1, 2, 3, 5])).endswith("5 of 5 done\n")


def test_an_action_without_a_housekeeper_is_not_waited_for_and_named() -> None:
    with pytest.raises(NotInTime, match=r"is a housekeeper running\?.*firmq bulk show a1"):
        delete_all(BulkActions(5, [0, 0]))


def test_without_dead_letters_there_is_no_action() -> None:
    actions = BulkActions(0, [])
    assert (delete_all(actions), actions.started) == ("none\n", False)
