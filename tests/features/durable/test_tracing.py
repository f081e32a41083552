"""What a trace has of steps."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.observability.test_one_trace import collector, http, submit, the_one
from tests.support.collector import Collector
from tests.support.harness import System

__all__ = ["collector", "http"]


def test_how_steps_are_stored_is_no_span_of_the_handler(
    system: System, collector: Collector, http: httpx.Client, tmp_path: Path
) -> None:
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    task_id = submit(http, "walk", {"folder": str(tmp_path), "names": ["a", "b"]})
    assert system.ended(task_id).attempts[0].spans == ()
    the_one(collector.wait_for("process walk"))
