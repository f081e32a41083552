"""Charts: columns stand on each other, a burst does not flatten the rest, lines have gaps."""

from __future__ import annotations

import pytest

from firmq.dashboard.explain.charts import HEIGHT, WIDTH, columns, lines, top_of

TONES = ("bad", "good")


def test_the_parts_of_a_column_stand_on_each_other() -> None:
    chart = columns([0, 60], TONES, [(1, 3), (0, 2)], [0, 4])
    first, second = chart.columns
    assert [(part.tone, part.y, part.height) for part in first.segments] == [
        ("bad", 0.75 * HEIGHT, HEIGHT / 4),
        ("good", 0, 0.75 * HEIGHT),
    ]
    assert [(part.tone, part.height) for part in second.segments] == [("good", HEIGHT / 2)]
    assert (first.x, second.x) == (0, WIDTH / 2)


def test_a_burst_is_cut_off_and_marked() -> None:
    chart = columns(range(20), TONES, [(0, 10)] * 19 + [(5, 10_000)], [0] * 20)
    assert chart.top == 40
    assert [column.is_cut for column in chart.columns] == [False] * 19 + [True]
    assert sum(part.height for part in chart.columns[-1].segments) == pytest.approx(HEIGHT)
    assert chart.columns[0].segments[0].height == pytest.approx(HEIGHT / 4)


def test_a_single_failure_among_many_is_visible() -> None:
    [column] = columns([0], TONES, [(1, 100_000)], [0]).columns
    assert column.segments[0].tone == "bad"
    assert column.segments[0].height >= 1.5


def test_a_line_has_gaps_where_there_is_no_value() -> None:
    chart = lines([0, 60, 120, 180], {"p50": [1.0, None, 2.0, 2.0]})
    assert chart.lines[0].path == "M76.5,75.0h0.1M436.5,0.0h0.1L616.5,0.0"


def test_nothing_makes_an_empty_chart() -> None:
    assert top_of([], []) == 1
    chart = columns([], TONES, [], [])
    assert (chart.columns, chart.labels) == ([], [])
