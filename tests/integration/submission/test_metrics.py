"""A program that uses OpenTelemetry's metrics gets those of its direct submissions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.harness import ROOT

PROGRAM = """
import asyncio, json, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from firmq import AsyncQueue, Queue, Refused, new_task

reader = InMemoryMetricReader()
MANY = [new_task("process", 3), new_task("process", 4, priority="high"), new_task("proces", 5)]

def threads(url):
    with Queue(url) as queue:
        queue.submit("process", 1)  # before there is a provider
        metrics.set_meter_provider(MeterProvider([reader]))
        queue.submit("process", 2)
        try:
            queue.submit("resize", {})
        except Refused:
            pass
        queue.submit_many(MANY)

async def coroutines(url):
    metrics.set_meter_provider(MeterProvider([reader]))
    async with AsyncQueue(url) as queue:
        await queue.submit("process", 2)
        try:
            await queue.submit("resize", {})
        except Refused:
            pass
        await queue.submit_many(MANY)

if sys.argv[1] == "threads":
    threads(sys.argv[2])
else:
    asyncio.run(coroutines(sys.argv[2]))
print(reader.get_metrics_data().to_json())
"""


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_submissions_are_counted_by_queue_and_error(kind: str, submitter_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, submitter_url], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {each["name"]: each for each in metrics_in(json.loads(done.stdout))}
    sent = found["messaging.client.sent.messages"]["data"]["data_points"]
    assert {about(point): point["value"] for point in sent} == {
        ("normal", None): 2,
        ("high", None): 1,
        (None, "invalid-request"): 1,
        (None, "unknown-task-type"): 1,
    }
    duration = found["messaging.client.operation.duration"]["data"]["data_points"]
    assert {about(point): point["count"] for point in duration} == {
        ("normal", None): 1,
        (None, "invalid-request"): 1,
        (None, None): 1,  # of several at once
    }
    assert all(0 < point["sum"] < 60 for point in duration)


def metrics_in(told: dict[str, Any]) -> list[dict[str, Any]]:
    [scope] = [each for each in told["resource_metrics"][0]["scope_metrics"] if each["scope"]["name"] == "firmq"]
    return list(scope["metrics"])


def about(point: dict[str, Any]) -> tuple[str | None, str | None]:
    attributes = point["attributes"]
    assert attributes["messaging.system"] == "firmq"
    return attributes.get("messaging.destination.name"), attributes.get("error.type")
