"""What the job that sends alerts writes for each channel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from firmq.shared.features.alerts.standing import Outcome, Standing
from firmq.shared.features.alerts.store import Message
from firmq.worker.features.alerts.job import Alerts


def standing(title: str) -> Standing:
    return Standing(name="FirmqWorkersLost", level="danger", title=title, advice="", link="", since=1, sent="danger")


def written(outcome: Outcome, *waiting: Message) -> dict[str, list[str]]:
    """The titles that each of two channels gets."""
    job: Any = SimpleNamespace(
        channels=[SimpleNamespace(name="chat"), SimpleNamespace(name="mail")],
        store=SimpleNamespace(messages=lambda: list(waiting)),
    )
    messages = Alerts._messages(cast("Alerts", job), outcome, 5)
    return {each.channel: [standing.title for standing in (*each.fired, *each.resolved)] for each in messages}


def test_repetitions_do_not_queue_up_where_a_channel_is_down() -> None:
    lasts, new = standing("lasts"), standing("new")
    waiting = Message.new("chat", [lasts], [])
    assert written(Outcome(repeated=[lasts])) == {"chat": ["lasts"], "mail": ["lasts"]}
    assert written(Outcome(repeated=[lasts]), waiting) == {"mail": ["lasts"]}
    assert written(Outcome(fired=[new], repeated=[lasts]), waiting) == {"chat": ["new"], "mail": ["new", "lasts"]}
    assert written(Outcome()) == {}
