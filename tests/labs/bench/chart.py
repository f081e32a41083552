"""A bar chart of the results as one SVG file, without a drawing library; it follows a light or dark scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.labs.bench.report import Format, disturbance, megabytes, milliseconds, short, whole
from tests.labs.bench.summary import Results

WIDTH = 860
LABELS = 150
VALUES = 90
BAR = 12
GAP = 8
HEAD = 46

STYLE = """
  .back { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 15px } .small { font-size: 11px }
  .first { fill: #2a6fbb } .second { fill: #d98a2b }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } text { fill: #e6edf3 } .first { fill: #6cb0f5 } .second { fill: #f0b35e }
  }
"""


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    workload: str
    metric: str
    style: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    format: Format
    series: tuple[Series, ...]

    def workloads(self) -> set[str]:
        return {series.workload for series in self.series}

    def height(self, systems: int) -> int:
        return HEAD + systems * (len(self.series) * BAR + GAP) + GAP


def both(metric: str) -> tuple[Series, ...]:
    return (Series("results kept", "drain", metric, "first"), Series("not kept", "drain-discarded", metric, "second"))


def one(metric: str) -> tuple[Series, ...]:
    return (Series("", "waiting", metric, "first"),)


def quantiles(workload: str) -> tuple[Series, ...]:
    return (Series("p50", workload, "p50", "first"), Series("p99", workload, "p99", "second"))


PANELS = (
    Panel("Empty tasks a second (more is better)", whole, both("tasks_per_second")),
    Panel("Processor seconds per 1,000 empty tasks (less is better)", short, both("cpu_per_1000")),
    Panel("Wait to start, idle workers, ms (less is better)", milliseconds, quantiles("idle")),
    Panel("Wait of 1 ms tasks beside a 2 s task, ms (less is better)", milliseconds, quantiles("mixed")),
)


WAITING = (
    Panel(
        "Waiting tasks a second (more is better; 10,000 with all slots always taken)", whole, one("tasks_per_second")
    ),
    Panel("Processor seconds per 1,000 waiting tasks (less is better)", short, one("cpu_per_1000")),
    Panel("Peak memory of the workers, MB (less is better)", megabytes, one("peak_pss")),
    Panel("Wait of an empty task beside waiting ones, ms (less is better)", milliseconds, quantiles("occupied")),
)

PICTURES = {"results.svg": PANELS, "waiting.svg": WAITING}


def svg(results: Results, panels: Sequence[Panel]) -> str:
    """Every panel for which there are numbers, one below the other; "" when there is none."""
    top, drawn = 0, []
    for panel in panels:
        if panel.workloads() & results.workloads():
            drawn.append(draw(results, panel, top))
            top += panel.height(len(results.ranked(panel.workloads())))
    if not drawn:
        return ""
    drawn.append(text(16, top + 14, origin(results), "small"))
    top += 24
    frame = f'<rect class="back" width="{WIDTH}" height="{top}"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", frame, *drawn, "</svg>"]) + "\n"


def origin(results: Results) -> str:
    """A picture travels without its page: where and when it was taken, and how much else the machine was doing."""
    machine, options = results.machine, results.options
    where = f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, {machine['redis']}"
    return f"{where}; {options['tasks']:,} tasks, rounds: {options['rounds']}.{disturbance(results)}"


def draw(results: Results, panel: Panel, top: int) -> str:
    parts = [text(16, top + 24, panel.title, "title"), *legend(panel, top + 40)]
    longest = highest(results, panel)
    y = top + HEAD
    for card in results.ranked(panel.workloads()):
        middle = y + len(panel.series) * BAR // 2 + 4
        parts.append(text(16, middle, card.title))
        for series in panel.series:
            parts.append(bar(results, panel, series, card.name, y, longest))
            y += BAR
        y += GAP
    return "\n".join(parts)


def bar(results: Results, panel: Panel, series: Series, system: str, y: int, longest: float) -> str:
    spread = results.spread(system, series.workload, series.metric)
    if spread is None:
        return text(LABELS, y + 10, "–", "small")
    length = max(1.0, (WIDTH - LABELS - VALUES) * spread.median / longest)
    drawn = f'<rect class="{series.style}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 1}" rx="2"/>'
    return drawn + text(int(LABELS + length + 6), y + 10, panel.format(spread.median), "small")


def highest(results: Results, panel: Panel) -> float:
    spreads = [
        results.spread(card.name, series.workload, series.metric) for card in results.cards for series in panel.series
    ]
    return max((spread.median for spread in spreads if spread), default=1.0) or 1.0


def legend(panel: Panel, y: int) -> list[str]:
    """On the line of the title, at the right."""
    parts = []
    for n, series in enumerate(panel.series if len(panel.series) > 1 else ()):
        x = WIDTH - 220 + n * 110
        parts.append(f'<rect class="{series.style}" x="{x}" y="{y - 25}" width="10" height="10" rx="2"/>')
        parts.append(text(x + 15, y - 16, series.label, "small"))
    return parts


def text(x: int, y: int, words: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(words)}</text>'
