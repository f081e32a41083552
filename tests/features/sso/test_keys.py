"""Personal API keys at the gateway: what they permit, what they see, and when they end."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from firmq.dashboard.auth.users import account_digest
from firmq.shared.domain.redaction import HIDDEN
from firmq.shared.domain.task import WEBHOOK_TYPE
from firmq.shared.errors import StoreRefused
from firmq.shared.features.sso.keys import SsoKeys
from firmq.shared.features.sso.personal_keys import MOST, PersonalKeys, TooManyKeys
from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.task_types import TaskType
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.integration.gateway.test_earlier_tasks import create as create_batch
from tests.integration.gateway.test_keys import bearer
from tests.integration.redis.test_full_redis import full
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.receiver import SECRET as WEBHOOK_SECRET
from tests.support.store import Store

DAY = timedelta(days=1)
SSO = SsoKeys.beside(keys)
ALL = tuple(Scope)


@pytest.fixture
def held(redis_client: Redis) -> PersonalKeys:
    return PersonalKeys(Scripts(redis_client))


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway that accepts personal keys with every scope."""
    return make_gateway(personal_keys=ALL)


def created(held: PersonalKeys, *scopes: Scope, owner: str = "local:ann", name: str = "ann") -> dict[str, str]:
    """The headers of a new key."""
    return bearer(held.create(owner, name, "a script", scopes, DAY, 10)[1])


def test_a_personal_key_permits_what_its_scopes_say_in_the_name_of_its_user(
    gateway: Gateway, held: PersonalKeys, redis_client: Redis
) -> None:
    submit, operate = created(held, Scope.SUBMIT), created(held, Scope.OPERATE, owner="local:otto", name="otto")
    task = gateway.http.post("/tasks", json={"type": "process", "data": 1}, headers=submit).get_json()["task_id"]
    problem(gateway.http.get("/tasks", headers=submit), 403, "scope-missing")
    shown = gateway.http.get(f"/tasks/{task}", headers=operate).get_json()
    assert shown["submitted_by"].startswith("user:ann~")
    assert gateway.http.delete(f"/tasks/{task}", headers=operate).status_code == 200
    [entry] = Audit(redis_client).page(10)[0]
    assert entry.who.startswith("user:otto~")
    assert " by API key " in entry.who


def test_users_of_one_name_are_two_clients(held: PersonalKeys) -> None:
    owners = [f"local:{account_digest('ann', each)}" for each in ("hash", "other")]
    owners.append(f"oidc:{account_digest('https://login', 'ann')}")
    clients = {held.create(each, "ann", "x", [Scope.READ], DAY, 1)[0].client for each in owners}
    assert len(clients) == 3


def test_a_gateway_takes_only_the_scopes_of_its_setting(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    admin = created(held, *Scope)
    http = make_gateway(personal_keys=("read",)).http
    assert http.get("/tasks", headers=admin).status_code == 200
    problem(http.post("/tasks", json={"type": "process"}, headers=admin), 403, "scope-missing")


def test_a_gateway_without_the_setting_refuses_personal_keys(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    """So does a gateway of a version that does not know them: they have another form than its own keys."""
    from firmq.shared.stores.api_keys import _KEY, new_key

    headers = created(held, *Scope)
    http = make_gateway(api_keys=(new_key("shop", [Scope.READ])[0].line,)).http
    problem(http.get("/tasks", headers=headers), 401, "key-unknown")
    assert not _KEY.fullmatch(headers["Authorization"].removeprefix("Bearer "))


def test_with_the_setting_every_request_needs_a_key(gateway: Gateway) -> None:
    problem(gateway.http.get("/tasks"), 401, "key-required")


def test_a_revoked_or_expired_key_is_refused_at_once(gateway: Gateway, held: PersonalKeys) -> None:
    key, sent = held.create("local:ann", "ann", "x", [Scope.READ], DAY, 10)
    assert gateway.http.get("/tasks", headers=bearer(sent)).status_code == 200
    assert [each is not None for each in held.last_used([key])] == [True]
    later = PersonalKeys(held.scripts, lambda: datetime.now(UTC) + DAY)
    assert later.find(sent) is None
    assert later.all() == []
    assert held.revoke(key.id)
    problem(gateway.http.get("/tasks", headers=bearer(sent)), 401, "key-unknown")
    assert not held.redis.exists(keys.api_key(key.id)), "its last use is removed with it"


@pytest.mark.parametrize("wrong", ["secret", "id", "form", "record", "type"])
def test_what_is_no_valid_key_is_refused(gateway: Gateway, held: PersonalKeys, wrong: str) -> None:
    key, sent = held.create("local:ann", "ann", "x", [Scope.READ], DAY, 10)
    if wrong == "record":
        held.redis.hset(SSO.PERSONAL_KEYS, key.id, '{"owner": [], "scopes": ["read"], "digest": 5}')
    elif wrong == "type":
        held.redis.delete(SSO.PERSONAL_KEYS)
        held.redis.set(SSO.PERSONAL_KEYS, "a value of another program")
        gateway.http.get("/tasks", headers=bearer(sent))  # it is quarantined
    else:
        sent = {"secret": sent[:-1] + ("0" if sent[-1] != "0" else "1"), "id": "fqp_" + "a" * 12 + sent[16:]}.get(
            wrong, sent + "0"
        )
    problem(gateway.http.get("/tasks", headers=bearer(sent)), 401, "key-unknown")


def test_one_command_verifies_a_key_however_many_there_are(
    gateway: Gateway, held: PersonalKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [held.create(f"local:{owner}", "ann", "x", [Scope.READ], DAY, 10)[1] for owner in range(30)][-1]
    before = held.redis.info("commandstats")
    assert held.find(sent)
    assert held.find("fq_abcdefgh_" + "0" * 40) is None, "of another kind: asks nothing"
    after = held.redis.info("commandstats")
    calls = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert {name for name, count in calls.items() if count} == {"cmdstat_hget", "cmdstat_info"}
    assert calls["cmdstat_hget"] == 1


def test_keys_are_bounded_for_each_user_and_in_all(held: PersonalKeys) -> None:
    for _ in range(3):
        held.create("local:ann", "ann", "x", [Scope.READ], DAY, 3)
    with pytest.raises(TooManyKeys, match="ann has 3 keys"):
        held.create("local:ann", "ann", "x", [Scope.READ], DAY, 3)
    record = held.redis.hvals(SSO.PERSONAL_KEYS)[0]
    held.redis.hset(SSO.PERSONAL_KEYS, mapping={f"other-{at}": record for at in range(MOST - 3)})
    with pytest.raises(TooManyKeys, match="1,000 personal keys"):
        held.create("local:ben", "ben", "x", [Scope.READ], DAY, 3)
    expired = b'{"owner": "local:ann", "expires_at": 5}'
    held.redis.hset(SSO.PERSONAL_KEYS, mapping=dict.fromkeys(held.redis.hkeys(SSO.PERSONAL_KEYS), expired))
    held.create("local:ben", "ben", "x", [Scope.READ], DAY, 3)
    assert held.redis.hlen(SSO.PERSONAL_KEYS) == 1, "expired ones are removed"


def test_redis_holds_no_secret(held: PersonalKeys) -> None:
    sent = held.create("local:ann", "ann", "x", [Scope.READ], DAY, 3)[1]
    assert sent.rpartition("_")[2] not in str(held.redis.hgetall(SSO.PERSONAL_KEYS))


SECRET = {"customer": {"iban": "DE02"}, "password": "hunter2", "city": "Bonn"}


def test_a_personal_key_sees_no_field_that_the_dashboard_hides(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    from firmq.shared.stores.api_keys import new_key

    key, sent = new_key("shop", [Scope.ADMIN])
    shop, ann = bearer(sent), created(held, *Scope)
    gateway = make_gateway(personal_keys=ALL, api_keys=(key.line,), dashboard_redact=("customer.iban", "*password*"))
    task = gateway.http.post("/tasks", json={"type": "process", "data": SECRET}, headers=shop).get_json()["task_id"]
    body = {"type": "process", "data": SECRET, "interval": 3600}
    assert gateway.http.put("/schedules/tick", json=body, headers=shop).status_code == 201
    gateway.start()
    gateway.complete(task, SECRET)

    def said(path: str, headers: dict[str, str]) -> str:
        answer: Any = gateway.http.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    for path in (f"/tasks/{task}", f"/tasks/{task}/result", "/schedules", "/schedules/tick", *rows("VISIBLE")):
        assert "Bonn" in (seen := said(path, ann)), path
        assert "hunter2" not in seen, path
        assert "DE02" not in seen, path
        assert "hunter2" in said(path, shop), "other keys see everything"
    assert HIDDEN in said(f"/tasks/{task}", ann)
    for hidden in ({"data": "customer.iban:DE02"}, {"search": "data.password:hunter2"}):
        for path in ("/tasks", *rows("FILTERED")):
            asked = gateway.http.get(path, query_string={"type": "process", **hidden}, headers=ann)
            problem(asked, 403, "scope-missing")
            assert gateway.http.get(path, query_string={"type": "process", **hidden}, headers=shop).status_code == 200
        for preview in rows("PREVIEWS"):
            problem(preview(gateway.http, {"type": "process", **hidden}, headers=ann), 403, "scope-missing")
    assert gateway.http.get("/tasks", query_string={"data": "city:Bonn"}, headers=ann).status_code == 200
    for path in rows("BY_FIELD"):
        asked = gateway.http.get(path, query_string={"type": "process", "field": "customer.iban"}, headers=ann)
        problem(asked, 403, "scope-missing")


def test_copies_of_hidden_fields_are_hidden(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    types = (TaskType(name="process", schema={}), TaskType(name=WEBHOOK_TYPE, schema={}))
    gateway = make_gateway(
        types, personal_keys=ALL, webhook_secrets=(WEBHOOK_SECRET,), dashboard_redact=("customer.iban", "*password*")
    )
    ann = created(held, *Scope)
    nested = {"body": json.dumps([SECRET]), "city": "Bonn"}
    body = {"type": "process", "data": nested, "webhook": {"url": "https://shop.example/hooks"}}
    task = gateway.http.post("/tasks", json=body, headers=ann).get_json()["task_id"]
    gateway.start()
    for chunk in (json.dumps(SECRET), json.dumps(json.dumps(SECRET)), "unreadable hunter2"):
        gateway.redis.xadd(keys.output(task), {"attempt": 1, "chunk": chunk})
    gateway.redis.xadd(keys.output(task), {"attempt": 1, "chunk": '"x"\rid: 7\rdata: hunter2'})
    gateway.complete(task, SECRET)
    queries = {"type": ("process", WEBHOOK_TYPE), "field": ("body", "result_base64")}
    paths = [f"/tasks/{task}", f"/tasks/{task}/stream", f"/tasks/{task}-hook-1", f"/tasks/{task}-hook-1/result"]
    paths += [f"/breakdown?type={kind}" for kind in queries["type"]]
    paths += [f"/breakdown.csv?type={kind}&field={field}" for kind in queries["type"] for field in queries["field"]]
    encoded = gateway.redis.hget(keys.rq_job(f"{task}-hook-1"), "data")
    assert encoded
    [result] = re.findall(r'result_base64\\*": ?\\*"([^"\\]+)', text(encoded))
    for path in paths:
        seen = gateway.http.get(path, headers=ann).text
        for secret in ("hunter2", "DE02", result[:16]):
            assert secret not in seen, path
    shown = gateway.http.get(f"/tasks/{task}", headers=ann).get_json()["data"]
    assert json.loads(shown["body"])[0]["city"] == "Bonn"
    problem(gateway.http.patch(f"/tasks/{task}-hook-1", json={"data": shown}, headers=ann), 403, "scope-missing")
    for path in ("data.result_base64", "data"):
        wanted = {"from": {"type": WEBHOOK_TYPE}, "task": {"type": "process", "data": {"$from": path}}}
        problem(gateway.http.post("/batches", json=wanted, headers=ann), 403, "scope-missing")


def test_placeholders_do_not_replace_hidden_values(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    gateway = make_gateway(personal_keys=ALL, dashboard_redact=("*password*",))
    ann = bearer(held.create("local:ann", "ann", "x", list(Scope), DAY, 3)[1])
    body = {"type": "process", "data": SECRET}
    task = gateway.http.post("/tasks", json=body, headers=ann).get_json()["task_id"]
    seen = gateway.http.get(f"/tasks/{task}", headers=ann).get_json()["data"]
    problem(gateway.http.patch(f"/tasks/{task}", json={"data": seen}, headers=ann), 403, "scope-missing")
    schedule = {"type": "process", "data": seen, "interval": 3600}
    problem(gateway.http.put("/schedules/tick", json=schedule, headers=ann), 403, "scope-missing")
    assert gateway.http.patch(f"/tasks/{task}", json={"data": SECRET}, headers=ann).status_code == 200


def test_no_personal_key_is_added_and_one_is_revoked(store: Store) -> None:
    held = PersonalKeys(store.scripts)
    key, sent = held.create("local:a", "ann", "script", [Scope.READ], timedelta(days=1), 10)
    with full(store.redis):
        with pytest.raises(StoreRefused):
            held.create("local:a", "ann", "other", [Scope.READ], timedelta(days=1), 10)
        assert held.find(sent) == key
        assert held.revoke(key.id)
    assert held.all() == []


def test_hidden_fields_are_not_copied(make_gateway: MakeGateway, held: PersonalKeys) -> None:
    gateway = make_gateway(personal_keys=ALL, dashboard_redact=("customer.iban",))
    ann = created(held, *Scope)
    body = {"type": "process", "data": {"customer": {"iban": "DE02", "city": "Bonn"}}}
    assert gateway.http.post("/tasks", json=body, headers=ann).status_code == 202
    for path, status in (
        ("data.customer.iban", 403),
        ("data.customer", 403),
        ("data", 403),
        ("data.customer.city", 202),
    ):
        answer = create_batch(gateway, {"type": "process"}, {"type": "process", "data": {"$from": path}}, headers=ann)
        assert answer.status_code == status if status == 403 else answer.json["accepted"], path
