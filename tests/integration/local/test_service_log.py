"""Many logs become one that can be read."""

from __future__ import annotations

import io

import pytest

from shared.local.supervisor import ServiceLog


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_stand_in_a_column() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api", "worker"])
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == "api    | one\nworker | two\n"


@pytest.mark.parametrize(
    ("out", "no_colour", "lines"),
    [
        (Terminal(), "", "\x1b[36mapi    |\x1b[0m one\n\x1b[33mworker |\x1b[0m two\n"),
        (Terminal(), "1", "api    | one\nworker | two\n"),
    ],
)
def test_names_have_colours_on_a_terminal_unless_that_is_not_wanted(
    out: Terminal, no_colour: str, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    log = ServiceLog(out, ["api", "worker"])
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == lines


def test_reader_that_went_away_stops_nothing() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api"])
    out.close()
    log.line("api", "unread")
