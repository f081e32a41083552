"""API keys at the gateway: every route for every scope, what a refusal says, rates, last use, and who did it."""

from __future__ import annotations

import pkgutil
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from firmq.gateway import routes
from firmq.gateway.app import create_app
from firmq.gateway.auth.authenticator import Authenticator
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.registry import folders_of
from firmq.shared.stores.api_keys import ApiKey, Scope, new_key
from firmq.shared.stores.audit import Audit
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.least_privilege import url_of_user

SCOPES = (None, *Scope)
KEYS = {scope: new_key(f"{scope}-client", [scope]) for scope in Scope}
LINES = tuple(key.line for key, _ in KEYS.values())


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def of(scope: Scope | None) -> dict[str, str]:
    """The headers of a caller with this scope; None has no key."""
    return bearer(KEYS[scope][1]) if scope else {}


@pytest.fixture
def guarded(make_gateway: MakeGateway) -> Gateway:
    """A gateway with a key for each scope."""
    return make_gateway(api_keys=LINES)


OPEN = {
    "GET /",
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/{name}",
    "GET /favicon.ico",
    "GET /problems",
    "GET /problems/{name}",
    "GET /health/live",
    "GET /health/ready",
    "GET /metrics",
}
SUBMIT = {
    "POST /tasks",
    "POST /tasks/batch",
    "POST /tasks/outbox",
    "POST /batches",
    "POST /batches/{batch_id}/tasks",
    "POST /batches/{batch_id}/close",
}
READ = {*rows("READ")}
OPERATE = {
    "DELETE /tasks/{task_id}",
    "PATCH /tasks/{task_id}",
    "DELETE /batches/{batch_id}",
    "POST /batches/{batch_id}/retry",
    "POST /dlq/failed-tasks/{task_id}/retry",
    "POST /tasks/{task_id}/restore",
    "POST /queues/{name}/pause",
    "POST /queues/{name}/foreign/move",
    "POST /queues/{name}/resume",
    "POST /types/{name}/pause",
    "POST /types/{name}/resume",
    "PUT /limits/types/{name}",
    "DELETE /limits/types/{name}",
    "PUT /limits/keys/{name}",
    "DELETE /limits/keys/{name}",
    "POST /schedules/{name}/pause",
    "POST /schedules/{name}/resume",
    "POST /schedules/{name}/run",
    *rows("OPERATE"),
}
ADMIN = {
    "DELETE /dlq/failed-tasks/{task_id}",
    "PUT /schedules/{name}",
    "DELETE /schedules/{name}",
    "DELETE /admin/locks/{name}",
    "POST /admin/leader/step-down",
    "GET /admin/keys",
}


def _routes() -> list[str]:
    app = create_app(Settings(), connect("redis://127.0.0.1:1"))
    return sorted(rule.endpoint for rule in app.url_map.iter_rules())


ROUTES = _routes()


def needed(route: str) -> Scope | None:
    """The table; what is not in it is for readers when it only shows something."""
    for scope, members in (
        (None, OPEN),
        (Scope.SUBMIT, SUBMIT),
        (Scope.READ, READ),
        (Scope.OPERATE, OPERATE),
        (Scope.ADMIN, ADMIN),
    ):
        if route in members:
            return scope
    assert route.startswith("GET "), f"{route} changes something and is not in the table"
    return Scope.READ


def ask(http: FlaskClient, route: str, headers: dict[str, str]) -> TestResponse:
    method, _, path = route.partition(" ")
    path = re.sub(r"{\w+_id}", "nobody", path).replace("{name}", "nothing")
    return http.open(path, method=method, headers=headers, json={} if method != "GET" else None)


@pytest.mark.registration
def test_the_table_names_only_routes_that_exist() -> None:
    assert set(ROUTES) >= OPEN | SUBMIT | READ | OPERATE | ADMIN


@pytest.fixture(scope="module")
def authenticator(redis_server: EmbeddedRedis) -> Iterator[FlaskClient]:
    """One for all cells of the table; what is behind the door does not matter there."""
    redis_server.start()
    with connect(url_of_user(redis_server)) as redis:
        yield create_app(Settings(api_keys=LINES), redis).test_client()


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_requires_its_scope(authenticator: FlaskClient, route: str) -> None:
    scope = needed(route)
    may = {
        None: set(SCOPES),
        Scope.SUBMIT: {Scope.SUBMIT, Scope.ADMIN},
        Scope.READ: {Scope.READ, Scope.OPERATE, Scope.ADMIN},
        Scope.OPERATE: {Scope.OPERATE, Scope.ADMIN},
        Scope.ADMIN: {Scope.ADMIN},
    }[scope]
    for caller in SCOPES:
        answer = ask(authenticator, route, of(caller))
        if caller in may:
            assert answer.status_code not in (401, 403), (caller, answer.text)
        elif caller is None:
            problem(answer, 401, "key-required")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        else:
            about = problem(answer, 403, "scope-missing")
            assert f"the scope {scope}" in about["detail"]
            assert f"has {caller}" in about["detail"]


def test_the_document_says_what_each_route_takes(guarded: Gateway) -> None:
    document = guarded.http.get("/openapi.json").get_json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    told = {
        f"{method.upper()} {path}": operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert set(ROUTES) - told.keys() <= OPEN, "pages about the API itself"
    for route, operation in told.items():
        scope = needed(route)
        assert operation["security"] == ([{"key": [scope]}] if scope else []), route
        assert ("401" in operation["responses"]) == (scope is not None), route


def test_without_keys_the_document_says_that_none_is_needed(http: FlaskClient) -> None:
    operations = http.get("/openapi.json").get_json()["paths"]
    assert operations["/tasks"]["post"]["security"] == [{"key": ["submit"]}, {}]


def test_the_page_takes_a_key_where_there_are_keys(guarded: Gateway) -> None:
    assert guarded.http.get("/docs").status_code == 200
    document = guarded.http.get("/openapi.json").get_json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer", "the page has a form for it"
    assert document["paths"]["/tasks/{task_id}"]["delete"]["security"] == [{"key": ["operate"]}]


@pytest.mark.parametrize("header", ["Basic c2hvcDpzZWNyZXQ=", "Bearer", "Bearer ", "KEY", "Token KEY"])
def test_what_is_no_key_is_answered_with_how_to_send_one(guarded: Gateway, header: str) -> None:
    given = header.replace("KEY", KEYS[Scope.ADMIN][1])
    answer = guarded.http.get("/tasks", headers={"Authorization": given})
    assert "Authorization: Bearer KEY" in problem(answer, 401, "key-required")["detail"]


def test_every_wrong_key_gets_the_same_answer(make_gateway: MakeGateway) -> None:
    key, text = KEYS[Scope.ADMIN]
    old, old_text = new_key("old", [Scope.ADMIN])
    http = make_gateway(api_keys=(key.line, f"{old.line}:expires=2020-01-01")).http
    said = set()
    wrong_end = text[:-1] + ("0" if text[-1] != "0" else "1")
    for wrong in (wrong_end, f"fq_zzzzzzzz_{'0' * 40}", "nonsense", old_text, "fq_" + "ä" * 9):
        answer = http.get("/tasks", headers={"Authorization": f"bearer {wrong}".encode().decode("latin-1")})
        about = problem(answer, 401, "key-unknown")
        said.add(about["detail"])
        assert wrong[:20] not in answer.text
    assert said == {"invalid or expired API key: request a new one"}
    assert http.get("/tasks", headers={"Authorization": f"bearer  {text} "}).status_code == 200


def test_the_key_is_checked_before_the_rest_of_the_request(guarded: Gateway) -> None:
    broken = {"Accept": "image/png", "Content-Type": "text/plain"}
    problem(guarded.http.post("/tasks", data=b"{", headers=broken), 401, "key-required")
    problem(guarded.http.get("/tasks?limit=no"), 401, "key-required")


def test_nothing_of_the_system_is_told_without_a_key(guarded: Gateway) -> None:
    ready = guarded.http.get("/health/ready").get_json()
    assert ready["redis"] == {
        "reachable": True,
        "version": None,
        "eviction_policy": None,
        "append_only": None,
        "used_memory_bytes": None,
        "error": None,
    }
    assert (ready["workers"], ready["queues"], ready["notes"]) == (None, None, [])
    problem(guarded.http.get("/health"), 401, "key-required")
    assert guarded.http.get("/health", headers=of(Scope.READ)).get_json()["queues"]
    assert guarded.http.get("/health/live").get_json() == {"status": "ok"}


def test_a_removed_key_is_refused_within_a_second(make_gateway: MakeGateway, tmp_path: Path) -> None:
    (one, first), (two, second) = (new_key("shop", [Scope.READ]) for _ in range(2))
    path = tmp_path / "keys"
    path.write_text(f"{one.line}\n{two.line}\n")
    http = make_gateway(api_keys_file=str(path)).http
    assert [http.get("/tasks", headers=bearer(text)).status_code for text in (first, second)] == [200, 200]
    path.write_text(f"{two.line}\n")
    _until(lambda: http.get("/tasks", headers=bearer(first)).status_code == 401)
    assert http.get("/tasks", headers=bearer(second)).status_code == 200


def _until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# --- whose request it is ---


def test_idempotency_keys_of_clients_are_separate(make_gateway: MakeGateway) -> None:
    (shop, first), (again, second), (other, third) = (
        new_key(name, [Scope.SUBMIT]) for name in ("shop", "shop", "other")
    )
    http = make_gateway(api_keys=(shop.line, again.line, other.line)).http
    body = {"type": "process", "data": 1}

    def sent(text: str) -> str:
        answer = http.post("/tasks", json=body, headers={**bearer(text), "Idempotency-Key": "one"})
        assert answer.status_code == 202
        return str(answer.get_json()["task_id"])

    assert sent(first) == sent(second)
    assert sent(first) != sent(third)


def test_the_log_line_names_the_client_and_never_the_key(guarded: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    guarded.http.get("/tasks", headers=of(Scope.READ))
    line = next(each for each in caplog.records if each.name == "firmq.gateway.access")
    assert line.__dict__["client"] == "read-client"
    assert KEYS[Scope.READ][1] not in str([each.__dict__ for each in caplog.records])


ACTS = [
    ("POST", "/queues/high/pause", {"reason": "partner is down"}, "paused queue", "high", "partner is down"),
    ("POST", "/queues/high/resume", None, "resumed queue", "high", ""),
    ("PUT", "/limits/types/process", {"concurrency": 5}, "set limit", "type:process", "at once: 5, rate: any"),
    ("DELETE", "/limits/types/process", None, "removed limit", "type:process", ""),
    ("PUT", "/limits/keys/a", {"rate": "9/s"}, "set limit", "key:a", "at once: any number, rate: 9/s"),
    ("DELETE", "/limits/keys/a", None, "removed limit", "key:a", ""),
    ("PUT", "/schedules/s", {"type": "process", "data": 1, "interval": 60}, "changed schedule", "s", ""),
    ("POST", "/schedules/s/pause", {"reason": "holidays"}, "paused schedule", "s", "holidays"),
    ("POST", "/schedules/s/resume", None, "resumed schedule", "s", ""),
    ("DELETE", "/schedules/s", None, "deleted schedule", "s", ""),
]


def test_changes_through_the_api_are_audited_with_their_client(guarded: Gateway) -> None:
    key = KEYS[Scope.ADMIN][0]
    for method, path, body, *_ in ACTS:
        answer = guarded.http.open(path, method=method, json=body, headers=of(Scope.ADMIN))
        assert answer.status_code < 300, answer.text
    entries, _ = Audit(guarded.redis).page(100)
    found = [(each.what, each.about, each.detail) for each in reversed(entries)]
    assert found == [tuple(expected) for _, _, _, *expected in ACTS]
    assert {each.who for each in entries} == {f"admin-client by API key {key.id}"}


def test_replacing_the_task_of_another_client_is_too_and_replacing_ones_own_is_not(guarded: Gateway) -> None:
    def sent(scope: Scope) -> str:
        body = {"type": "process", "data": 1, "unique_key": "customer-7", "on_conflict": "replace"}
        answer = guarded.http.post("/tasks", json=body, headers=of(scope))
        assert answer.status_code == 202, answer.text
        return str(answer.get_json()["task_id"])

    sent(Scope.ADMIN)
    replaced = sent(Scope.ADMIN)
    assert Audit(guarded.redis).page(10)[0] == []
    by = sent(Scope.SUBMIT)
    [entry], _ = Audit(guarded.redis).page(10)
    assert (entry.what, entry.about) == ("replaced task", replaced)
    assert entry.who == f"submit-client by API key {KEYS[Scope.SUBMIT][0].id}"
    assert by in entry.detail


def test_tasks_and_dead_letters_are_too(guarded: Gateway) -> None:
    headers = of(Scope.ADMIN)

    def sent() -> str:
        answer = guarded.http.post("/tasks", json={"type": "process", "data": 1}, headers=headers)
        return str(answer.get_json()["task_id"])

    dead = sent()
    guarded.fail(dead)
    assert guarded.http.post(f"/dlq/failed-tasks/{dead}/retry", headers=headers).status_code == 202
    guarded.fail(dead)
    assert guarded.http.delete(f"/dlq/failed-tasks/{dead}", headers=headers).status_code == 200
    waits = sent()
    assert guarded.http.delete(f"/tasks/{waits}?reason=enough", headers=headers).status_code == 200
    problem(guarded.http.delete("/tasks/nobody", headers=headers), 404, "not-found")
    entries, _ = Audit(guarded.redis).page(10)
    assert [(each.what, each.about, each.detail) for each in reversed(entries)] == [
        ("retried", dead, ""),
        ("deleted", dead, ""),
        ("cancelled", waits, "enough"),
    ]


@pytest.mark.registration
def test_every_operating_route_writes_an_audit_entry() -> None:
    in_their_script = {"DELETE /admin/locks/{name}", "POST /admin/leader/step-down"}
    packages = [routes, *(import_module(f"firmq.gateway.features.{each.name}") for each in folders_of("gateway"))]
    named = [f"{one.__name__}.{each.name}" for one in packages for each in pkgutil.iter_modules(one.__path__)]
    modules = [import_module(each) for each in named]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    declared = [each.endpoint for one in classes for each in [*vars(one).values()] if hasattr(each, "endpoint")]
    acts = {f"{each.method} {each.path}": each.act for each in declared}
    changing = {route for route in OPERATE | ADMIN if not route.startswith("GET ")}
    assert {route for route in changing if acts[route] is None} == in_their_script


def test_refusals_are_counted_by_why_and_nothing_tells_whose_key_it_was(make_gateway: MakeGateway) -> None:
    shop, text = new_key("shop", [Scope.READ], "1/h")
    old, old_text = new_key("bygone", [Scope.READ])
    gateway = make_gateway(api_keys=(shop.line, f"{old.line}:expires=2020-01-01"))
    stranger = f"fq_zzzzzzzz_{'0' * 40}"
    statuses = [
        gateway.http.get("/tasks").status_code,
        *(gateway.http.get("/tasks", headers=bearer(key)).status_code for key in (stranger, old_text, text, text)),
        gateway.http.delete("/tasks/some-id", headers=bearer(text)).status_code,
    ]
    assert statuses == [401, 401, 401, 200, 429, 403]
    page = gateway.http.get("/metrics").text
    for reason in ("missing", "unknown", "expired", "rate", "scope"):
        assert f'firmq_key_refusals_total{{reason="{reason}"}} 1.0' in page
    for word in ("shop", "bygone", shop.id, old.id, stranger[:11]):
        assert word not in page


# --- rates ---


def rated(make_gateway: MakeGateway, rate: str) -> tuple[Gateway, ApiKey, dict[str, str]]:
    key, text = new_key("shop", [Scope.READ], rate)
    return make_gateway(api_keys=(key.line,)), key, bearer(text)


def test_a_key_is_let_through_at_its_rate_and_told_when_to_come_again(make_gateway: MakeGateway) -> None:
    gateway, _, headers = rated(make_gateway, "3/h")
    assert [gateway.http.get("/tasks", headers=headers).status_code for _ in range(3)] == [200, 200, 200]
    answer = gateway.http.get("/tasks", headers=headers)
    about = problem(answer, 429, "rate-limited")
    assert "3/h" in about["detail"]
    assert 1100 < int(answer.headers["Retry-After"]) <= 1200


def test_what_is_refused_for_another_reason_counts_too(make_gateway: MakeGateway) -> None:
    gateway, _, headers = rated(make_gateway, "2/h")
    for _ in range(2):
        problem(gateway.http.get("/tasks?limit=no", headers=headers), 422, "invalid-request")
    problem(gateway.http.get("/tasks?limit=no", headers=headers), 429, "rate-limited")
    assert gateway.http.get("/health", headers=headers).status_code == 200, "health is never counted"


def test_the_rate_is_one_over_all_processes(make_gateway: MakeGateway, redis_client: Redis) -> None:
    """Four gateways with many callers at once let through what the key may have, and what came due meanwhile."""
    key, text = new_key("shop", [Scope.READ], "60/h")
    gateways = [make_gateway(api_keys=(key.line,)) for _ in range(4)]

    def calls(at: int) -> int:
        http = gateways[at % 4].app.test_client()
        return sum(http.get("/queues", headers=bearer(text)).status_code == 200 for _ in range(20))

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        let_through = sum(pool.map(calls, range(8)))
    due = int((time.monotonic() - begun) / 60)
    assert 60 <= let_through <= 60 + due + 1


def test_two_keys_of_a_client_have_a_rate_each(make_gateway: MakeGateway) -> None:
    made = [new_key("shop", [Scope.READ], "1/h") for _ in range(2)]
    http = make_gateway(api_keys=tuple(key.line for key, _ in made)).http
    for _, text in made:
        assert [http.get("/tasks", headers=bearer(text)).status_code for _ in range(2)] == [200, 429]


def test_a_corrupt_counter_locks_out_no_client(make_gateway: MakeGateway) -> None:
    gateway, key, headers = rated(make_gateway, "5/h")
    for tokens, at in (("nan", "x"), ("-1e300", "1e300"), ("", "")):
        gateway.redis.delete(keys.api_key(key.id))
        if tokens:
            gateway.redis.hset(keys.api_key(key.id), mapping={"tokens": tokens, "at": at})
        else:
            gateway.redis.set(keys.api_key(key.id), "something else")
        answer = gateway.http.get("/tasks", headers=headers)
        assert answer.status_code == 200, answer.text


# --- last used ---


def test_the_last_use_of_a_key_is_noted_once_a_minute_and_shown(guarded: Gateway, redis_client: Redis) -> None:
    key = KEYS[Scope.READ][0]
    guarded.http.get("/tasks", headers=of(Scope.READ))
    noted = redis_client.hget(keys.api_key(key.id), "used")
    assert noted
    assert 0 < redis_client.ttl(keys.api_key(key.id)) <= 366 * 86400
    for _ in range(20):
        guarded.http.get("/tasks", headers=of(Scope.READ))
    assert redis_client.hget(keys.api_key(key.id), "used") == noted, "not with every request"
    shown = guarded.http.get("/admin/keys", headers=of(Scope.ADMIN)).get_json()["items"]
    by_id = {each["id"]: each for each in shown}
    assert len(shown) == 4
    assert by_id[key.id]["last_used_at"]
    assert by_id[key.id]["client"] == "read-client"
    assert by_id[KEYS[Scope.OPERATE][0].id]["last_used_at"] is None
    assert all(text not in str(shown) for _, text in KEYS.values())
    assert all(each.digest.hex() not in str(shown) for each, _ in KEYS.values())


@pytest.mark.parametrize("used", ["9" * 5000, "9" * 400, "never", b"\xff"])
def test_a_last_use_that_cannot_be_read_is_not_shown(guarded: Gateway, redis_client: Redis, used: str | bytes) -> None:
    key = KEYS[Scope.READ][0]
    redis_client.hset(keys.api_key(key.id), "used", used)
    shown = guarded.http.get("/admin/keys", headers=of(Scope.ADMIN)).get_json()["items"]
    assert {each["id"]: each["last_used_at"] for each in shown}[key.id] is None


def test_a_minute_later_it_is_noted_again(guarded: Gateway, redis_client: Redis) -> None:
    key = KEYS[Scope.READ][0]
    authenticator: Authenticator = guarded.app.extensions["authenticator"]
    now = time.monotonic()
    authenticator.clock = lambda: now
    guarded.http.get("/tasks", headers=of(Scope.READ))
    redis_client.delete(keys.api_key(key.id))
    now += 59
    guarded.http.get("/tasks", headers=of(Scope.READ))
    assert not redis_client.exists(keys.api_key(key.id))
    now += 2
    guarded.http.get("/tasks", headers=of(Scope.READ))
    assert redis_client.exists(keys.api_key(key.id))


def test_a_redis_writer_cannot_create_an_api_key(guarded: Gateway, redis_client: Redis) -> None:
    """Keys are in the settings: whatever stands in Redis under a key's name opens nothing."""
    key, text = new_key("intruder", [Scope.ADMIN])
    for name in (keys.api_key(key.id), f"{keys.prefix}firmq:api-keys", f"{keys.prefix}firmq:keys:{key.id}"):
        redis_client.hset(
            name, mapping={"hash": key.digest, "line": key.line, "scopes": "admin", "client": "x", "used": "1"}
        )
    problem(guarded.http.get("/tasks", headers=bearer(text)), 401, "key-unknown")


# --- a Redis that takes no writes ---


@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
def test_a_read_only_redis_locks_out_no_operator(make_gateway: MakeGateway, redis_client: Redis, setting: str) -> None:
    """With a key never seen before, with or without a rate, it is as without keys: noting its use is no condition."""
    made = [new_key("ops", [Scope.ADMIN], rate) for rate in (None, "100/s")]
    open_to_all, http = make_gateway().http, make_gateway(api_keys=tuple(key.line for key, _ in made)).http
    for each in (open_to_all, http):
        assert each.get("/health/ready").status_code == 200, "it has been running for a while"
    redis_client.config_set(setting, 1)
    try:
        for _, text in made:
            for route in ("GET /tasks", "GET /queues", "GET /workers", "DELETE /tasks/nobody"):
                found = ask(http, route, bearer(text)).status_code
                assert found == ask(open_to_all, route, {}).status_code, route
                assert found == 200 or route.startswith("DELETE"), route
            assert http.get("/admin/keys", headers=bearer(text)).status_code == 200
            paused = http.post("/queues/high/pause", json={"reason": "full"}, headers=bearer(text))
            assert paused.status_code == open_to_all.post("/queues/high/pause", json={"reason": "full"}).status_code
    finally:
        redis_client.config_set(setting, 0)


def test_a_full_redis_still_counts_a_rate(make_gateway: MakeGateway, redis_client: Redis) -> None:
    gateway, _, headers = rated(make_gateway, "2/h")
    redis_client.config_set("maxmemory", "1")
    try:
        assert [gateway.http.get("/tasks", headers=headers).status_code for _ in range(3)] == [200, 200, 429]
    finally:
        redis_client.config_set("maxmemory", "0")


def test_who_may_only_submit_closes_a_batch_and_learns_nothing_of_it(guarded: Gateway) -> None:
    headers = of(Scope.SUBMIT)
    batch = guarded.http.post("/batches", json={"name": "private"}, headers=headers).get_json()["batch_id"]
    closed = guarded.http.post(f"/batches/{batch}/close", headers=headers)
    assert (closed.status_code, closed.data) == (204, b"")
    shown = guarded.http.get(f"/batches/{batch}", headers=of(Scope.READ)).get_json()
    assert (shown["name"], shown["status"]) == ("private", "ended")
