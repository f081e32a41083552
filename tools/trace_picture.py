"""Draws the trace in docs/operate/trace.json as docs/operate/trace.svg: `python -m tools.trace_picture`.

`--check` compares only. The spans are those of a real task, as a collector got them; to record them again:
RECORD_TRACE=1 make test ARGS="tests/integration/observability/test_trace_picture.py"
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

Span = dict[str, Any]
FOLDER = Path(__file__).parent.parent / "docs" / "operate"
SPANS, PICTURE = FOLDER / "trace.json", FOLDER / "trace.svg"
WIDTH, LABELS, ROW, TOP = 960, 250, 30, 44
PAUSE_WIDTH, PAUSE_MS = 90, 50.0
"""Width of a pause in which nothing happens, and from how many milliseconds one is cut out of the scale."""
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .small { font-size: 11px; fill: #52606d; paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .paper { fill: #ffffff } .line { stroke: #d5dbe1 } .link { stroke: #52606d; fill: none; stroke-dasharray: 3 3 }
  .gateway { fill: #2f6fab } .worker { fill: #2e8555 } .wait { fill: #b9c3cc } .error { fill: #c2402d }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ec } .small { fill: #a3adb8; stroke: #14191f } .paper { fill: #14191f } .line { stroke: #343d47 }
    .link { stroke: #a3adb8 } .gateway { fill: #5b9bd9 } .worker { fill: #4fae7b } .wait { fill: #56616c }
    .error { fill: #e06a58 }
  }
"""


def pauses(spans: Sequence[Span]) -> Iterator[tuple[float, float]]:
    """Yields the times in milliseconds without any span, of those that are long."""
    ended = 0.0
    for span in sorted(spans, key=lambda each: float(each["start"])):
        if span["start"] - ended > PAUSE_MS:
            yield ended, span["start"]
        ended = max(ended, float(span["end"]))


def scale(spans: Sequence[Span]) -> Callable[[float], float]:
    """Returns where on the picture a time in milliseconds is; a pause has the same width, however long it is."""
    cut = list(pauses(spans))
    total = max(span["end"] for span in spans) - sum(end - start for start, end in cut)
    per_ms = (WIDTH - LABELS - 24 - PAUSE_WIDTH * len(cut)) / total

    def place(at: float) -> float:
        x: float = LABELS + at * per_ms
        for start, end in cut:
            inside = min(max(at - start, 0.0), end - start)
            x += inside / (end - start) * PAUSE_WIDTH - inside * per_ms
        return x

    return place


def drawn(spans: Sequence[Span]) -> str:
    """Returns the picture of a trace: a row for each span, indented below its parent."""
    height, place = TOP + ROW * len(spans) + 20, scale(spans)
    rows = {span["id"]: number for number, span in enumerate(spans)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">The trace of a task that fails once and is tried again</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
    ]
    for start, end in pauses(spans):
        left, right = place(start), place(end)
        middle, label = (left + right) / 2, f"retry in {end - start:.0f} ms"
        lines += [
            f'<path class="link" d="M{left:.1f} {TOP - 14}V{height - 12}M{right:.1f} {TOP - 14}V{height - 12}"/>',
            f'<text class="small" x="{middle:.1f}" y="{TOP - 18}" text-anchor="middle">{label}</text>',
        ]
    for number, span in enumerate(spans):
        if span["link"] in rows:
            lines.append(_link(spans[rows[span["link"]]], rows[span["link"]], span, number, place))
    for number, span in enumerate(spans):
        lines += _row(span, number, spans, place)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(span: Span, number: int, spans: Sequence[Span], place: Callable[[float], float]) -> Iterator[str]:
    y, parents = TOP + ROW * number, {each["id"]: each["parent"] for each in spans}
    depth, above = 0, parents[span["id"]]
    while above in parents:
        depth, above = depth + 1, parents[above]
    part = span["service"].removeprefix("firmq-")
    color = "wait" if span["name"].startswith("wait ") else "error" if span["error"] else part
    left, width = place(span["start"]), max(3.0, place(span["end"]) - place(span["start"]))
    text = f"{part}, {span['end'] - span['start']:.1f} ms" + (f": {span['error']}" if span["error"] else "")
    fits = left + width + 8 + 6.2 * len(text) < WIDTH
    x, anchor = (left + width + 6, "start") if fits else (left - 6, "end")
    yield f'<path class="line" d="M12 {y + ROW - 4}H{WIDTH - 12}"/>'
    yield f'<text x="{12 + 14 * depth}" y="{y + 16}">{escape(span["name"])}</text>'
    yield f'<rect class="{color}" x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="16" rx="2"/>'
    yield f'<text class="small" x="{x:.1f}" y="{y + 16}" text-anchor="{anchor}">{escape(text)}</text>'


def _link(before: Span, row: int, after: Span, number: int, place: Callable[[float], float]) -> str:
    """Returns the line from an attempt to the retry that is linked to it."""
    left, right = place(before["start"]) + 1.5, place(after["start"])
    return f'<path class="link" d="M{left:.1f} {TOP + ROW * row + 20}V{TOP + ROW * number + 12}H{right:.1f}"/>'


def main(arguments: list[str]) -> int:
    """Writes the picture, or with --check compares it. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.trace_picture", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args(arguments).check
    made = drawn(json.loads(SPANS.read_text()))
    if check and (not PICTURE.exists() or PICTURE.read_text() != made):
        print("docs/operate/trace.svg is not of docs/operate/trace.json: run python -m tools.trace_picture")
        return 1
    if not check:
        PICTURE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
