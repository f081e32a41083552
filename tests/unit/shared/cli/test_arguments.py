"""Command lines as people type them."""

from __future__ import annotations

import argparse
import re
import time

import pytest

from firmq.__main__ import main
from firmq.shared.cli.arguments import moment
from firmq.shared.cli.main import parser


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("submit pack --priority high DATA", {"type": "pack", "data": "DATA", "priority": "high"}),
        ("submit --tag a pack DATA --tag=b", {"type": "pack", "data": "DATA", "tags": ["a", "b"]}),
        ("submit pack --prio high DATA", {"type": "pack", "data": "DATA", "priority": "high"}),
        ("submit pack --delay 5 -.5", {"type": "pack", "data": "-.5", "delay": 5.0}),
        ("submit pack -5e3 --watch", {"type": "pack", "data": "-5e3", "watch": True}),
        ("submit pack --watch -", {"type": "pack", "data": "-", "watch": True}),
        ("submit pack -- --data", {"type": "pack", "data": "--data"}),
        ("submit --url http://two pack -- -x", {"url": "http://two", "type": "pack", "data": "-x"}),
        (
            "schedules put name type --interval 60 DATA",
            {"name": "name", "type": "type", "data": "DATA", "interval": 60},
        ),
        ("dlq retry one --type pack two", {"ids": ["one", "two"], "task_type": "pack"}),
        ("show one --json", {"id": "one", "json": True}),
        ("-o json show one", {"id": "one", "json": "json"}),
        ("show -o text one", {"id": "one", "json": "text"}),
        ("worker one --queues low two", {"modules": ["one", "two"], "WORKER_QUEUES": "low"}),
        ("worker --concurrency 10 --queues a=2", {"concurrency": 10, "WORKER_QUEUES": "a=2"}),
        ("breakdown --type pack customer.id", {"type": "pack", "field": "customer.id"}),
    ],
)
def test_options_stand_anywhere(line: str, read: dict[str, object]) -> None:
    found = vars(parser().parse_args(line.split()))
    assert {name: found[name] for name in read} == read


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("sumbit pack", "did you mean submit?"),
        ("dlq lst", "did you mean list?"),
        ("wroker", "did you mean worker?"),
        ("list --status complete", "did you mean completed?"),
        ("submit pack --priorty high", "did you mean --priority?"),
        ("worker --queue-s low", "did you mean --queues?"),
    ],
)
def test_a_word_that_is_not_known_is_answered_with_a_similar_one(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


def test_the_help_of_a_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "--help"])
    assert capsys.readouterr().out.startswith("usage: firmq submit")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"firmq \d+\.\S+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("zone", "given"), [("Europe/Berlin", "2026-03-29T02:30"), ("America/Los_Angeles", "9999-12-31T20:00")]
)
def test_a_local_time_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch, zone: str, given: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    with pytest.raises(argparse.ArgumentTypeError):
        moment(given)
    assert moment(f"{given}+00:00").tzinfo is not None
