"""What a worker counts: few series whatever comes, and every attempt once."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from firmq.shared.domain.task import TaskState
from firmq.worker.metrics import MOST_ERRORS, MOST_TYPES, WorkerMetrics
from tests.support.figures import judge


@pytest.fixture
def metrics() -> WorkerMetrics:
    counted = WorkerMetrics("w")
    counted.know(["process", "calculate"])
    return counted


def page(metrics: WorkerMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def lines(metrics: WorkerMetrics) -> int:
    return len(page(metrics).splitlines())


def test_registered_types_are_there_before_their_first_task(metrics: WorkerMetrics) -> None:
    shown = page(metrics)
    assert 'task_completions_total{status="completed",type="process"} 0.0' in shown
    assert 'task_duration_seconds_count{type="calculate"} 0.0' in shown


def test_a_flood_of_unknown_types_is_one_more_type(metrics: WorkerMetrics) -> None:
    metrics.ended("never-heard-of", "failed", 0.1, "UnknownTaskType")
    before = lines(metrics)
    for number in range(10_000):
        metrics.ended(f"made-up-{number}", "failed", 0.1, "UnknownTaskType")
    assert lines(metrics) == before
    assert 'task_completions_total{status="failed",type="other"} 10001.0' in page(metrics)


def test_a_flood_of_error_classes_is_cut_off_and_the_rest_counted_together(metrics: WorkerMetrics) -> None:
    for number in range(10_000):
        metrics.ended("process", "retrying", 0.1, f"MadeUp{number}")
    shown = page(metrics)
    assert shown.count("task_failures_total{") == MOST_ERRORS + 1
    assert f'task_failures_total{{error="other",type="process"}} {10_000 - MOST_ERRORS}.0' in shown
    metrics.ended("calculate", "retrying", 0.1, "ZeroDivisionError")
    assert 'task_failures_total{error="ZeroDivisionError",type="calculate"} 1.0' in page(metrics)


def test_a_flood_of_registered_types_is_cut_off() -> None:
    metrics = WorkerMetrics("w")
    metrics.know(f"type-{number}" for number in range(5000))
    for number in range(5000):
        metrics.ended(f"type-{number}", "completed", 0.1, "")
    assert page(metrics).count('task_completions_total{status="completed"') == MOST_TYPES + 1
    assert metrics.total(TaskState.COMPLETED) == 5000


@pytest.mark.parametrize("name", ["\ud800", 'quote"\\', "line\nbreak", "é" * 500])
def test_an_error_class_of_any_name_leaves_the_page_readable(metrics: WorkerMetrics, name: str) -> None:
    metrics.ended("process", "failed", 0.1, name)
    metrics.ended("process", "failed", 0.1, name)
    [line] = [line for line in page(metrics).splitlines() if line.startswith("task_failures_total{")]
    assert line.endswith(" 2.0")
    assert len(line) < 200


def test_every_attempt_is_a_completion_or_a_retry(metrics: WorkerMetrics) -> None:
    for state in ("completed", "retrying", "retrying", "failed", "failed", "cancelled", "pending"):
        metrics.ended("process", state, 0.1, "" if state == "completed" else "Some")
    shown = page(metrics)
    assert 'task_completions_total{status="failed",type="process"} 2.0' in shown
    assert 'task_completions_total{status="cancelled",type="process"} 1.0' in shown
    assert "task_retries_total 2.0" in shown
    assert 'task_duration_seconds_count{type="process"} 6.0' in shown
    assert 'task_failures_total{error="Some",type="process"} 4.0' in shown


@pytest.mark.alone
def test_counting_an_attempt_costs_little(metrics: WorkerMetrics) -> None:
    began = time.process_time()
    for _ in range(100_000):
        metrics.waits.observe(0.003)
        metrics.ended("process", "completed", 0.001, "")
    microseconds = (time.process_time() - began) * 10
    print(f"{microseconds:.2f} microseconds of processor for an attempt")
    judge("100,000 attempts counted", microseconds / 10, 0.5)
