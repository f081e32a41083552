"""Many logs become one that can be read."""

from __future__ import annotations

import io

import pytest

from shared.local.service_log import LineCutter, ServiceLog, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_stand_in_a_column() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api", "worker"], colour=False)
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == "api    | one\nworker | two\n"


def test_colour_is_in_the_name_alone_and_differs_between_services() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api", "worker"], colour=True)
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == "\x1b[36mapi    |\x1b[0m one\n\x1b[33mworker |\x1b[0m two\n"


@pytest.mark.parametrize(
    ("out", "env", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(out: io.StringIO, env: dict[str, str], colour: bool) -> None:
    assert wants_colour(out, env) is colour


def test_last_lines_are_remembered_per_service() -> None:
    log = ServiceLog(io.StringIO(), ["api", "worker"], colour=False)
    for number in range(30):
        log.line("api", str(number))
    assert log.last_lines("api") == [str(number) for number in range(10, 30)]
    assert log.last_lines("worker") == []


def test_reader_that_went_away_stops_nothing() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api"], colour=False)
    out.close()
    log.line("api", "nobody hears me")
    assert log.last_lines("api") == ["nobody hears me"]


def test_lines_are_put_together_from_pieces() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\ntw") == ["one"]
    assert cutter.feed(b"o\r\n\nthr") == ["two", ""]
    assert cutter.rest() == ["thr"]


def test_bytes_that_are_no_text_do_not_stop_the_log() -> None:
    assert LineCutter().feed(b"\xff\n") == ["\ufffd"]


def test_line_without_end_is_cut() -> None:
    cutter = LineCutter()
    assert [len(line) for line in cutter.feed(b"x" * 100_000)] == [100_000]
    assert cutter.rest() == []
