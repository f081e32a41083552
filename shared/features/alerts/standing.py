"""The life cycle of an alert: it holds for a while, is sent, again if it lasts, and is reported once as resolved.

Pure: takes the stored and the present alerts, and returns the records to store and the messages to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from firmq.shared.conditions.conditions import Alert, Level, conditions
from firmq.shared.domain.clock import to_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The stored state of an alert: its text when it was last sent, since when it holds (µs), the level it was sent
    with ("" for not sent), since when it no longer holds (µs; 0 while it does), and when it was last sent (µs)."""

    name: str
    level: str
    title: str
    advice: str
    link: str
    since: int
    sent: str = ""
    clear_since: int = 0
    sent_at: int = 0

    @classmethod
    def of(cls, alert: Alert, since: int = 0) -> Standing:
        """Returns the state of an alert that is new."""
        name, level, title, advice, link = alert.name, alert.level, alert.title, alert.advice, alert.link
        return cls(name=name, level=level, title=title, advice=advice, link=link, since=since)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The changes: records by their keys (None for an alert that is over), and the alerts to send."""

    changes: dict[str, Standing | None] = field(default_factory=dict)
    fired: list[Standing] = field(default_factory=list)
    repeated: list[Standing] = field(default_factory=list)
    resolved: list[Standing] = field(default_factory=list)


def judge(
    found: Iterable[Alert],
    standings: Mapping[str, Standing],
    now_us: int,
    patience: timedelta,
    quiet: bool,
    repeat: timedelta = timedelta(),
) -> Outcome:
    """Returns the changes of the alerts that hold now, and of the stored ones.

    An alert is sent when it has held for `patience`, and reported as resolved when it has not held for as long. In
    quiet hours that is put off, except for an alert of the level danger. One that lasts is sent again after each
    `repeat`, if that is not 0.
    """
    outcome, wait = Outcome(), to_us(patience)
    current = {each.key: each for each in found if not conditions()[each.name].chosen}
    for key, alert in current.items():
        before = standings.get(key)
        after = _holding(alert, before, now_us, wait, to_us(repeat), quiet)
        grown = before and before.sent == Level.WARNING and after.sent == Level.DANGER
        if after.sent and (before is None or not before.sent or grown):
            outcome.fired.append(after)
        elif before and after.sent_at != before.sent_at:
            outcome.repeated.append(after)
        if after != before:
            outcome.changes[key] = after
    for key, before in standings.items():
        if key not in current:
            _clear(key, before, now_us, wait, quiet, outcome)
    return outcome


def _holding(alert: Alert, before: Standing | None, now_us: int, wait: int, repeat: int, quiet: bool) -> Standing:
    """Returns the record of an alert that holds; it is sent now if `sent` or `sent_at` is not as before."""
    new = Standing.of(alert, now_us)
    kept = replace(before, clear_since=0) if before else new
    danger = alert.level is Level.DANGER
    worse = danger and kept.sent == Level.WARNING
    again = repeat > 0 and now_us - kept.sent_at >= repeat
    if (kept.sent and not worse and not again) or now_us - kept.since < wait or (quiet and not danger):
        return kept
    return replace(new, since=kept.since, sent=str(alert.level), sent_at=now_us)


def _clear(key: str, before: Standing, now_us: int, wait: int, quiet: bool, outcome: Outcome) -> None:
    """Adds the change of an alert that does not hold any more."""
    if not before.sent:
        outcome.changes[key] = None
        return
    since = before.clear_since or now_us
    if now_us - since >= wait and (not quiet or before.sent == Level.DANGER):
        outcome.changes[key] = None
        outcome.resolved.append(before)
    elif not before.clear_since:
        outcome.changes[key] = replace(before, clear_since=since)
