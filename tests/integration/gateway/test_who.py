"""Who submitted a task, and who changed what: on record, filtered and exported."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.audit import Audit
from firmq.shared.submission.direct import _user_of
from tests.support.features import rows
from tests.support.harness import System


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _ids(http: FlaskClient, path: str, **options: Any) -> list[str]:
    answer = http.get(path, **options)
    assert answer.status_code == 200, answer.text
    return [each["task_id"] for each in (answer.json or {})["items"]]


def test_tasks_are_found_by_the_client_that_submitted_them(system: System) -> None:
    system.start_worker()
    made = {name: new_key(name, {Scope.SUBMIT, Scope.OPERATE}) for name in ("shop", "billing")}
    http = create_app(Settings(api_keys=tuple(key.line for key, _ in made.values())), system.redis).test_client()
    headers = {name: {"Authorization": f"Bearer {text}"} for name, (_, text) in made.items()}
    ids = {}
    for name in made:
        body = {"type": "noop", "data": None, "delay": 3600}
        ids[name] = http.post("/tasks", json=body, headers=headers[name]).json["task_id"]  # type: ignore[index]
    plain = http.post("/tasks", json={"type": "noop", "data": None}, headers=headers["shop"]).json["task_id"]  # type: ignore[index]
    assert _ids(http, "/tasks?submitted_by=billing", headers=headers["shop"]) == [ids["billing"]]
    assert set(_ids(http, "/tasks?submitted_by=shop", headers=headers["shop"])) == {ids["shop"], plain}
    assert system.records.get(ids["shop"]).summary.submitted_by == "shop"
    assert system.ended(plain).summary.submitted_by == "shop"
    found = [preview(http, {"submitted_by": "shop"}, headers=headers["shop"]) for preview in rows("PREVIEWS")]
    assert {each.json["count"] for each in found} <= {1}


@pytest.mark.parametrize(
    ("url", "user"), [("redis://reports@h:1/0", "reports"), ("redis://h:1/0", ""), ("redis://default:x@h:1/0", "")]
)
def test_a_program_that_submits_directly_is_named_by_its_redis_user(url: str, user: str) -> None:
    assert _user_of(Settings(redis_url=url)) == user


def _fill(system: System) -> None:
    audit = Audit(system.redis)
    for n in range(600):
        audit.record("ann" if n % 2 else "=HYPERLINK(1)", "cancelled" if n % 3 else "paused queue", f"task-{n}", "why")


def test_the_audit_record_is_filtered_page_by_page(system: System, http: FlaskClient) -> None:
    _fill(system)
    path, seen = "/audit?who=ANN&what=cancel&limit=150", []
    answer = http.get(path).json
    assert answer
    seen += answer["items"]
    assert len(seen) == 150
    seen += http.get(f"{path}&cursor={answer['next_cursor']}").json["items"]  # type: ignore[index]
    assert [each["about"] for each in seen] == [f"task-{n}" for n in reversed(range(600)) if n % 2 and n % 3]
    assert {each["who"] for each in seen} == {"ann"}
    now = Audit(system.redis).page(1)[0][0].at
    since = (now + timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert http.get(f"/audit?since={since}").json["items"] == []  # type: ignore[index]
    assert len(http.get(f"/audit?until={since}&about=task-599").json["items"]) == 1  # type: ignore[index]
    assert http.get("/audit?cursor=nonsense").status_code == 422


def test_it_is_exported_as_csv_and_json_lines(system: System, http: FlaskClient) -> None:
    _fill(system)
    rows = list(csv.DictReader(io.StringIO(http.get("/audit.csv").text)))
    assert len(rows) == 600
    assert {row["who"] for row in rows} == {"ann", "'=HYPERLINK(1)"}, "no cell is a formula"
    lines = [json.loads(line) for line in http.get("/audit.jsonl?about=task-1").text.splitlines()]
    assert lines[-1]["about"] == "task-1"
    assert all("task-1" in each["about"] for each in lines)
