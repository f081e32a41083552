"""The picture of a trace in the documentation is of a trace as it is now."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.integration.observability.test_one_trace import TRACE, collector, http, submit  # noqa: F401  # fixtures
from tests.support.collector import Collector, Span
from tests.support.harness import System, wait_until
from tools.trace_picture import PICTURE, SPANS, main

SHOWN = ("POST /tasks", "send flaky", "wait flaky", "process flaky")


def recorded(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """What the picture shows of spans: the order, and times in milliseconds since the first one."""
    first = min(span.start for span in spans)
    return [
        {
            "id": span.id,
            "parent": span.parent,
            "link": span.links[0][1] if span.links else "",
            "name": span.name,
            "service": span.service,
            "error": span.error or "",
            "start": round((span.start - first) / 1e6, 2),
            "end": round((span.end - first) / 1e6, 2),
        }
        for span in sorted(spans, key=lambda each: (SHOWN.index(each.name) > 1, each.start))
    ]


def structure(spans: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What is the same for each such task: ids are random, and times differ."""
    numbers = {span["id"]: number for number, span in enumerate(spans)}
    return [
        (span["name"], span["service"], span["error"], numbers.get(span["parent"]), numbers.get(span["link"]))
        for span in spans
    ]


def test_the_picture_shows_the_trace_of_a_task_that_is_tried_again(
    system: System,
    collector: Collector,  # noqa: F811
    http: httpx.Client,  # noqa: F811
    tmp_path: Path,
) -> None:
    system.start_worker(INITIAL_RETRY_DELAY="1")
    system.start_housekeeper()
    wait_until(lambda: "noop" in http.get("/types").text, "the types are known")
    for _ in range(5):  # the first requests take longer
        system.ended(http.post("/tasks", json={"type": "noop", "data": None}).json()["task_id"])
    system.ended(submit(http, "flaky", {"file": str(tmp_path / "runs"), "failures": 1}))
    collector.wait_for("process flaky", 2)
    collector.wait_for("wait flaky", 2)
    collector.wait_for("send flaky")
    collector.wait_for("POST /tasks")
    found = recorded([span for span in collector.spans if span.trace == TRACE and span.name in SHOWN])
    if os.environ.get("RECORD_TRACE"):
        SPANS.write_text(json.dumps(found, indent=1) + "\n")
        main([])
    assert structure(found) == structure(json.loads(SPANS.read_text()))
    assert main(["--check"]) == 0
    assert "process flaky" in PICTURE.read_text()
