"""depends_on over HTTP: what is taken, what is refused, what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gateway.driving import Gateway, problem


def test_a_task_waits_for_another_and_shows_for_which(gateway: Gateway) -> None:
    parent = gateway.submit()
    child = gateway.submit(depends_on=[parent])
    shown = gateway.show(child)
    assert shown["status"] == "blocked"
    assert shown["depends_on"] == [{"task_id": parent, "on": "success"}]
    assert shown["on_parent_failure"] == "cancel"
    gateway.start()
    gateway.complete(parent)
    assert gateway.show(child)["status"] == "pending"


def test_any_end_and_what_a_failure_means_can_be_chosen(gateway: Gateway) -> None:
    one, two = gateway.submit(), gateway.submit()
    wanted = [{"task_id": one, "on": "end"}, {"task_id": two}]
    child = gateway.submit(depends_on=wanted, on_parent_failure="release")
    shown = gateway.show(child)
    assert [each["on"] for each in shown["depends_on"]] == ["end", "success"]
    assert shown["on_parent_failure"] == "release"


def test_a_parent_that_does_not_exist_is_named(gateway: Gateway) -> None:
    parent = gateway.submit()
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1, "depends_on": [parent, "NOBODY"]})
    body = problem(answer, 422, "missing-parent")
    assert body["errors"][0]["field"] == "depends_on[1]"
    assert "NOBODY" in body["detail"]


@pytest.mark.parametrize(
    ("wanted", "field", "words"),
    [
        ("text", "depends_on", "must be an array"),
        ([None], "depends_on[0]", "must be an object"),
        ([{}], "depends_on[0]", "must name one task"),
        ([{"task_id": "a", "item": 1}], "depends_on[0]", "must name one task"),
        ([{"task_id": "a", "on": "luck"}], "depends_on[0].on", "must be one of success, end"),
        ([{"task_id": "a b"}], "depends_on[0].task_id", "must be a task id"),
        ([3], "depends_on[0].item", "is not in one"),
        ([True], "depends_on[0]", "must be an object"),
        (["x"] * 1001, "depends_on", "at most 1000"),
    ],
)
def test_what_cannot_be_depended_on_is_refused_with_its_place(
    gateway: Gateway, wanted: Any, field: str, words: str
) -> None:
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1, "depends_on": wanted})
    body = problem(answer, 422, "invalid-request")
    assert body["errors"][0]["field"].startswith(field), body
    assert words in body["detail"]
