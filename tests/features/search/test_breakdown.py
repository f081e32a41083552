"""Who is hit: tasks by the fields of their data and by tag."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import TooManyAtOnce
from firmq.shared.features.search import breakdown
from firmq.shared.features.search.breakdown import Breakdowns, Values, values_at
from firmq.shared.redis.client import text
from firmq.shared.stores import selection
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.selection import Source
from firmq.shared.stores.tasks import Filter
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System, wait_until
from tests.support.keys import keys

FAILED = Source(Filter(state=TaskState.FAILED))


@pytest.fixture
def breakdowns(system: System) -> Breakdowns:
    return Breakdowns(system.records, Batches(system.scripts))


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _hit(system: System, *customers: object, **options: object) -> str:
    """Dead letters of these customers; the key of their cause."""
    dead = ""
    for each in customers:
        data = json.dumps({"customer": {"id": each}, "items": ["tea", "milk"], "password": "secret"})
        [dead] = bury(system, ["no"], data=data, **options)  # type: ignore[arg-type]
    return text(system.redis.hget(keys.FAILURE_GROUP_OF, dead))


def test_tasks_are_counted_by_field_and_by_tag(system: System, breakdowns: Breakdowns) -> None:
    _hit(system, *["ann"] * 5, "bob", "bob", 7, tags=("eu",))
    _hit(system, None)
    found = breakdowns.read(FAILED)
    assert (found.tasks, found.complete) == (9, True)
    by_customer = found.fields["customer.id"]
    assert by_customer.top() == [("ann", 5), ("bob", 2), ("7", 1)]
    assert (by_customer.often, by_customer.missing) == (1, 1)
    assert found.fields["items"].top() == [("milk", 9), ("tea", 9)]
    assert (found.tags.top(), found.tags.missing) == ([("eu", 8)], 1)


def test_a_cause_leads_to_who_is_hit(system: System, browser: Browser) -> None:
    cause = _hit(system, *["ann"] * 5, "bob")
    _hit(system, "eve", error="KeyError")
    assert f'href="/breakdown?cause={cause}"' in browser.text(f"/dead-letters/{cause}")
    page = browser.text(f"/breakdown?cause={cause}")
    assert "6 tasks" in page
    assert "<bdi>customer.id</bdi> <small>2 different, 1 of them more than three times</small>" in page
    assert "<bdi>ann</bdi>" in page
    assert "<bdi>eve</bdi>" not in page
    alone = browser.text(f"/breakdown?cause={cause}&field=customer.id")
    assert "<bdi>tea</bdi>" not in alone
    exported = browser.get(f"/breakdown.csv?cause={cause}&field=customer.id")
    assert exported.text == "customer.id,tasks\r\nann,5\r\nbob,1\r\n"
    assert "attachment" in exported.headers["Content-Disposition"]


def test_hidden_fields_stay_hidden(system: System, browser: Browser, open_browser: Callable[..., Browser]) -> None:
    cause = _hit(system, "ann")
    assert "secret" not in browser.text(f"/breakdown?cause={cause}")
    assert browser.get(f"/breakdown?cause={cause}&field=password").status_code == 400
    assert browser.get(f"/breakdown.csv?cause={cause}&field=password").status_code == 400
    assert browser.get("/breakdown?cause=a:b").status_code == 400
    strict = open_browser(dashboard_redact="customer")
    assert "ann" not in strict.text(f"/breakdown?cause={cause}")
    assert strict.get(f"/breakdown?cause={cause}&field=customer.id").status_code == 400


def test_a_batch_is_broken_down_by_status(system: System, http: FlaskClient, browser: Browser) -> None:
    tasks = [{"type": "noop", "data": None}] * 2
    system.start_worker()

    wait_until(lambda: '"noop"' in http.get("/types").text, "the type is known")
    made = http.post("/tasks/batch", json={"name": "import", "tasks": tasks}).json or {}
    batch = made["batch_id"]
    for each in made["items"]:
        system.ended(each["task_id"])
    answer = http.get(f"/breakdown?batch_id={batch}&status=completed").json or {}
    assert (answer["tasks"], answer["fields"], answer["tags"]["missing"]) == (2, [], 2)
    assert (http.get(f"/breakdown?batch_id={batch}&status=failed").json or {})["tasks"] == 0
    assert http.get("/breakdown?batch_id=none").status_code == 404
    assert "no data with fields" in browser.text(f"/breakdown?batch_id={batch}")
    assert f"/breakdown?batch_id={batch}" in browser.text(f"/batches/{batch}")


def test_the_api_answers_with_counts_and_csv(system: System, http: FlaskClient) -> None:
    _hit(system, "ann", "ann", "=cmd()", tags=("eu",))
    answer = http.get("/breakdown?status=failed&field=customer.id").json or {}
    assert answer["fields"] == [
        {
            "field": "customer.id",
            "distinct": 2,
            "often": 0,
            "missing": 0,
            "values": [{"value": "ann", "tasks": 2}, {"value": "=cmd()", "tasks": 1}],
        }
    ]
    csv = http.get("/breakdown.csv?status=failed&field=customer.id")
    assert csv.content_type == "text/csv; charset=utf-8"
    assert csv.text == "customer.id,tasks\r\nann,2\r\n'=cmd(),1\r\n"
    assert http.get("/breakdown.csv?status=failed").text == "tag,tasks\r\neu,3\r\n"
    assert http.get("/breakdown?status=nonsense").status_code == 422


def test_the_number_of_tasks_is_bounded(
    system: System, breakdowns: Breakdowns, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(breakdown, "EXAMINED", 20)
    monkeypatch.setattr(selection, "CHUNK", 10)
    _hit(system, *range(25))
    found = breakdowns.read(FAILED)
    assert (found.tasks, found.complete) == (20, False)
    assert "Older ones are not counted" in browser.text("/breakdown?status=failed")


def test_corrupt_tasks_have_no_values(system: System, breakdowns: Breakdowns) -> None:
    _hit(system, "ann")
    [broken, gone] = bury(system, ["no", "no"])
    system.redis.hset(keys.rq_job(broken), "data", "nonsense")
    system.redis.delete(keys.rq_job(gone))
    system.redis.set(keys.rq_job(gone), "a text")
    found = breakdowns.read(FAILED, "customer.id")
    assert found.fields["customer.id"] == Values(found.fields["customer.id"].counts, missing=2)
    assert found.fields["customer.id"].top() == [("ann", 1)]


@pytest.mark.parametrize(
    ("data", "path", "values"),
    [
        ({"a": {"b": 1}}, "a.b", ["1"]),
        ({"a": {"b": 1}}, "a", []),
        ({"a": [1, 1, {"b": 2}, None, "x"]}, "a", ["1", "x"]),
        ({"a": True}, "a", ["true"]),
        ([1], "a", []),
        (None, "a", []),
    ],
)
def test_values_are_scalars(data: object, path: str, values: list[str]) -> None:
    assert values_at(data, path.split(".")) == values


def test_large_data_is_left_out_and_memory_bounded(system: System, breakdowns: Breakdowns, browser: Browser) -> None:
    plain = [json.dumps({"customer": "ann", "n": [{}] * 15_000, "at": at}) for at in range(60)]
    system.submit_many([("any", each) for each in plain])
    for _ in range(20):
        system.submit("any", json.dumps({"customer": "bob", "text": "x" * 1_000_000}))
    tracemalloc.start()
    found = breakdowns.read(Source())
    page = browser.text("/breakdown")
    suggested = browser.get("/suggestions?search=data.cu").json
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.tasks, found.large, found.complete) == (60, 20, True)
    assert found.fields["customer"].top() == [("ann", 60)]
    assert "20 tasks with more than 64 kB are not counted" in page
    assert suggested
    assert peak < 30 << 20, "the data has 23 MB, and takes sixty times as much where all is parsed"


def test_a_breakdown_ends_at_its_number_of_values(
    system: System, breakdowns: Breakdowns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakdown, "MOST_VALUES", 500)
    lists = [json.dumps({"items": [f"{at}-{each}" for each in range(100)]}) for at in range(20)]
    system.submit_many([("any", each) for each in lists])
    found = breakdowns.read(Source())
    assert len(found.fields["items"].counts) == 600
    assert not found.complete


def test_one_breakdown_is_read_at_a_time_and_few_wait(
    system: System, breakdowns: Breakdowns, http: FlaskClient, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor() as pool:
        with breakdown._TURN:
            waiting = [pool.submit(breakdowns.read, Source()) for _ in range(breakdown.MOST_WAITING)]
            wait_until(lambda: not breakdowns.room.places._value, "all wait")
            with pytest.raises(TooManyAtOnce):
                breakdowns.read(Source())
        assert [each.result().complete for each in waiting] == [True] * breakdown.MOST_WAITING
    monkeypatch.setattr("threading.BoundedSemaphore.acquire", lambda *_, **__: False)
    answer = http.get("/breakdown")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert browser.get("/breakdown").status_code == 503
