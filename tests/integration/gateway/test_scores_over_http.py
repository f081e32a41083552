"""The score of a task over HTTP: given, shown, filtered, changed, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.domain.task_fields import HIGHEST_SCORE
from tests.integration.gateway.driving import Gateway
from tests.support.features import rows


@pytest.mark.parametrize("score", [0, 5, 1.5, HIGHEST_SCORE])
def test_a_score_is_taken_and_shown_as_it_is(gateway: Gateway, score: float) -> None:
    found = gateway.show(gateway.submit(score=score))["score"]
    assert (found, type(found)) == (score, type(score))


@pytest.mark.parametrize("score", [-1, -0.001, HIGHEST_SCORE + 1, 1e300, "5", True, [5]])
def test_another_one_is_refused(gateway: Gateway, score: Any) -> None:
    answer = gateway.http.post("/tasks", json={"type": "process", "data": "x", "score": score})
    assert answer.status_code == 422
    assert "score: must be a number from 0 to 9007199254740992, the lower the sooner" in answer.text


def test_without_one_it_is_the_time_of_submission(gateway: Gateway) -> None:
    before = gateway.redis.time()
    found = gateway.show(gateway.submit(score=None))["score"]
    assert 0 <= found - (before[0] * 1000 + before[1] / 1000) < 60_000


@pytest.mark.parametrize("priority", [5, 0, -1, 2.5, "5", "-1"])
def test_a_number_as_a_priority_is_refused_with_a_hint(gateway: Gateway, priority: Any) -> None:
    said = "priority: must be one of critical, high, normal, low, default, got"
    hint = "an order inside a queue is a number in score, the lower the sooner"
    one = gateway.http.post("/tasks", json={"type": "process", "data": "x", "priority": priority})
    many = gateway.http.post("/tasks/batch", json={"tasks": [{"type": "process", "data": "x", "priority": priority}]})
    listed = gateway.http.get(f"/tasks?priority={priority}")
    for answer in (one, listed):
        assert answer.status_code == 422
        assert said in answer.text
    for answer in (one, many, listed):
        assert hint in answer.text


@pytest.mark.parametrize("priority", [True, "soon", None, [1]])
def test_another_priority_has_no_such_hint(gateway: Gateway, priority: Any) -> None:
    answer = gateway.http.post("/tasks", json={"type": "process", "data": "x", "priority": priority})
    assert "score" not in answer.text


def test_lists_are_filtered_by_score(gateway: Gateway) -> None:
    tasks = {score: gateway.submit(score=score) for score in (None, 0, 1, 5.5, HIGHEST_SCORE)}
    now = gateway.show(tasks[None])["score"]

    def found(query: str) -> set[Any]:
        answer = gateway.http.get(f"/tasks?{query}")
        assert answer.status_code == 200, answer.text
        ids = {each["task_id"] for each in answer.json["items"]}  # type: ignore[index]
        return {score for score, task_id in tasks.items() if task_id in ids}

    assert found("min_score=1") == {None, 1, 5.5, HIGHEST_SCORE}
    assert found("max_score=0") == {0}
    assert found("min_score=0&max_score=5.5") == {0, 1, 5.5}
    assert found(f"min_score={now}&max_score={now}") == {None}
    assert found(f"min_score={HIGHEST_SCORE}&status=pending") == {HIGHEST_SCORE}
    assert found("min_score=2&max_score=1") == set()
    assert {preview(gateway.http, {"max_score": 0}).json["count"] for preview in rows("PREVIEWS")} <= {1}


@pytest.mark.parametrize("query", ["min_score=x", "max_score=-1", "min_score=nan", "max_score=1e16"])
def test_a_wrong_bound_is_refused(gateway: Gateway, query: str) -> None:
    assert gateway.http.get(f"/tasks?{query}").status_code == 422


def test_it_is_changed_while_the_task_waits(gateway: Gateway) -> None:
    task = gateway.submit(score=5)
    answer = gateway.http.patch(f"/tasks/{task}", json={"score": 0})
    assert (answer.status_code, answer.json and answer.json["score"]) == (200, 0)
    assert gateway.http.patch(f"/tasks/{task}", json={"score": -1}).status_code == 422
    gateway.http.delete(f"/tasks/{task}")
    assert gateway.http.patch(f"/tasks/{task}", json={"score": 1}).status_code == 409


@pytest.mark.parametrize(
    ("body", "score"), [({"json": {"score": 7}}, 7), ({"json": {}}, 5), ({}, 5), ({"content_type": "text/plain"}, 5)]
)
def test_it_is_given_with_a_retry(gateway: Gateway, body: dict[str, Any], score: float) -> None:
    task = gateway.submit(score=5)
    gateway.fail(task)
    answer = gateway.http.post(f"/dlq/failed-tasks/{task}/retry", **body)
    assert answer.status_code == 202, answer.text
    assert gateway.show(task)["score"] == score


def test_a_wrong_score_of_a_retry_is_refused(gateway: Gateway) -> None:
    task = gateway.submit()
    gateway.fail(task)
    for body in ({"score": -1}, {"scores": 1}, [1]):
        assert gateway.http.post(f"/dlq/failed-tasks/{task}/retry", json=body).status_code == 422


def test_a_schedule_gives_it_to_its_tasks(gateway: Gateway) -> None:
    body = {"type": "process", "interval": 60, "score": 3}
    assert gateway.http.put("/schedules/nightly", json=body).json["score"] == 3  # type: ignore[index]
    assert gateway.show(gateway.http.post("/schedules/nightly/run").json["task_id"])["score"] == 3  # type: ignore[index]
    assert gateway.http.put("/schedules/nightly", json={**body, "score": -3}).status_code == 422
