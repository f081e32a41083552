"""The search over HTTP: the same words in lists, dead letters, breakdowns and previews."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from tests.integration.dashboard.conftest import bury
from tests.support.features import rows
from tests.support.harness import System


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


@pytest.fixture
def tasks(system: System) -> tuple[str, str]:
    """Dead letters of two customers."""
    [first] = bury(system, ["card declined"], data='{"customer": 42}')
    [second] = bury(system, ["timed out"], data='{"customer": 43}')
    return first, second


def _ids(http: FlaskClient, path: str, **query: Any) -> list[str]:
    answer = http.get(path, query_string=query)
    assert answer.status_code == 200, answer.text
    return [each["task_id"] for each in answer.get_json()["items"]]


WORDS: tuple[tuple[dict[str, str], str], ...] = (
    ({"error": "card"}, "error:card"),
    ({"data": "customer:42"}, "data.customer:42"),
    ({"data": "customer:42", "newer_than": "3600"}, "data.customer:42 age<1h"),
)


@pytest.mark.parametrize("path", ["/tasks", "/dlq/failed-tasks"])
@pytest.mark.parametrize(("fields", "search"), WORDS)
def test_lists_take_fields_and_words(
    http: FlaskClient, tasks: tuple[str, str], path: str, fields: dict[str, str], search: str
) -> None:
    assert _ids(http, path, **fields) == _ids(http, path, search=search) == [tasks[0]]
    assert _ids(http, path, type="fail", search=search) == [tasks[0]]
    assert _ids(http, path, type="other", search=search) == []


@pytest.mark.parametrize(("fields", "search"), WORDS)
def test_breakdowns_and_previews_take_them_too(
    http: FlaskClient, tasks: tuple[str, str], fields: dict[str, str], search: str
) -> None:
    plain = {name: float(value) if name == "newer_than" else value for name, value in fields.items()}
    for query, body in ((fields, plain), ({"search": search}, {"search": search})):
        for count in rows("CUSTOMERS"):
            assert count(http, query) == {"42": 1}
        for preview in rows("PREVIEWS"):
            answer = preview(http, body, dead=True).get_json()
            assert (answer["count"], [each["task_id"] for each in answer["sample"]]) == (1, [tasks[0]])


@pytest.mark.parametrize(
    ("query", "name", "words"),
    [
        ({"search": "colour:red"}, "search", "there is no field 'colour'"),
        ({"search": "type:a", "type": "b"}, "search", "type is in the search"),
        ({"data": "customer"}, "data", "customer.id:42"),
        ({"older_than": "0"}, "older_than", "more than 0"),
        ({"cause": "A-Z"}, "cause", ""),
        ({"id": "a b"}, "id", ""),
    ],
)
def test_an_error_names_the_parameter_and_the_word(
    http: FlaskClient, query: dict[str, str], name: str, words: str
) -> None:
    for path in ("/tasks", "/dlq/failed-tasks", *rows("FILTERED")):
        answer = http.get(path, query_string=query)
        assert answer.status_code == 422, answer.text
        assert f'"{name}"' in answer.text
        assert words in answer.text


def test_dead_letters_have_one_state(http: FlaskClient) -> None:
    assert http.get("/dlq/failed-tasks?status=failed").status_code == 200
    assert http.get("/dlq/failed-tasks?status=pending").status_code == 422
    assert http.get("/dlq/failed-tasks?search=state:pending").status_code == 422
    assert http.get("/dlq/failed-tasks?deleted=true").status_code == 422
