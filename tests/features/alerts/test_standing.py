"""An alert is sent once when it has held for a while, and once when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from firmq.shared.conditions.conditions import Alert, Level
from firmq.shared.features.alerts.standing import Standing, judge

MINUTE = timedelta(minutes=1)
WARNING = Alert(name="FirmqOldestTaskTooOld", level=Level.WARNING, subject="low", title="waits", advice="Do.")
DANGER = replace(WARNING, level=Level.DANGER, title="waits longer")
OTHER = replace(WARNING, subject="high")


@dataclass
class Day:
    """What is remembered, and what was sent at each minute."""

    standings: dict[str, Standing] = field(default_factory=dict)
    minute: int = 0
    sent: list[str] = field(default_factory=list)
    repeat: timedelta = timedelta()

    def passes(self, *found: Alert, minutes: int = 1, quiet: bool = False) -> list[str]:
        """Judges the same for some minutes; what was sent meanwhile."""
        before = len(self.sent)
        for _ in range(minutes):
            outcome = judge(found, self.standings, self.minute * 60_000_000 + 1, MINUTE, quiet, self.repeat)
            for key, record in outcome.changes.items():
                if record:
                    self.standings[key] = record
                else:
                    del self.standings[key]
            self.sent += [f"fired {each.title}" for each in outcome.fired]
            self.sent += [f"repeated {each.title}" for each in outcome.repeated]
            self.sent += [f"resolved {each.title}" for each in outcome.resolved]
            self.minute += 1
        return self.sent[before:]


def test_an_alert_that_holds_is_sent_once_and_resolved_once() -> None:
    day = Day()
    assert day.passes(WARNING, minutes=1) == []
    assert day.passes(WARNING, minutes=9) == ["fired waits"]
    assert day.passes(minutes=1) == []
    assert day.passes(minutes=9) == ["resolved waits"]
    assert day.standings == {}


def test_an_alert_of_a_moment_is_not_sent() -> None:
    day = Day()
    assert day.passes(WARNING) + day.passes(minutes=5) == []
    assert day.standings == {}


def test_an_alert_that_flickers_is_sent_once() -> None:
    day = Day()
    assert day.passes(WARNING, minutes=3) == ["fired waits"]
    assert [*day.passes(), *day.passes(WARNING), *day.passes(), *day.passes(WARNING)] == []
    assert day.passes(minutes=3) == ["resolved waits"]


def test_alerts_with_other_subjects_are_others() -> None:
    assert Day().passes(WARNING, OTHER, minutes=5) == ["fired waits", "fired waits"]


def test_an_alert_that_grows_worse_is_sent_again() -> None:
    day = Day()
    day.passes(WARNING, minutes=3)
    assert day.passes(DANGER, minutes=3) == ["fired waits longer"]
    assert day.passes(WARNING, minutes=3) == []
    assert day.passes(minutes=3) == ["resolved waits longer"]


def test_an_alert_that_lasts_is_sent_again_after_each_interval() -> None:
    day = Day(repeat=60 * MINUTE)
    assert day.passes(WARNING, minutes=61) == ["fired waits"]
    assert day.passes(WARNING, minutes=1) == ["repeated waits"]
    assert day.passes(WARNING, minutes=120) == ["repeated waits"] * 2
    assert day.passes(DANGER, minutes=60) == ["fired waits longer"]
    assert day.passes(WARNING, minutes=60) == ["repeated waits"]
    assert day.passes(DANGER, minutes=60) == ["fired waits longer"], "it was told as a warning since"
    assert day.passes(minutes=3) == ["resolved waits longer"]


def test_quiet_hours_put_off_repetitions_of_warnings_only() -> None:
    day = Day(repeat=10 * MINUTE)
    day.passes(WARNING, replace(DANGER, subject="x"), minutes=3)
    assert day.passes(WARNING, replace(DANGER, subject="x"), minutes=20, quiet=True) == ["repeated waits longer"] * 2
    assert day.passes(WARNING, replace(DANGER, subject="x"), minutes=1) == ["repeated waits"]


def test_an_alert_that_was_sent_before_repetitions_were_set_is_repeated() -> None:
    day = Day()
    day.passes(WARNING, minutes=90)
    day.repeat = 60 * MINUTE
    assert day.passes(WARNING, minutes=30) == ["repeated waits"]


def test_quiet_hours_put_off_warnings_only() -> None:
    day = Day()
    assert day.passes(WARNING, replace(DANGER, subject="x"), minutes=5, quiet=True) == ["fired waits longer"]
    assert day.passes(WARNING, minutes=1) == ["fired waits"]
    assert day.passes(minutes=5, quiet=True) == ["resolved waits longer"]
    assert day.passes() == ["resolved waits"]


def test_what_was_over_before_quiet_hours_end_is_never_sent() -> None:
    day = Day()
    assert day.passes(WARNING, minutes=5, quiet=True) + day.passes(minutes=5, quiet=True) + day.passes(minutes=5) == []


def test_what_a_person_chose_is_not_sent() -> None:
    assert Day().passes(replace(WARNING, name="FirmqQueuePaused"), minutes=5) == []
