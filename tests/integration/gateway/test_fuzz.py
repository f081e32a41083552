"""Whatever is asked of the API, it answers as its OpenAPI document says, and never with a 5xx.

Schemathesis reads the document, takes every operation through the edges of its schema, and makes up requests that the
schema allows and some that it does not, against a real gateway beside a worker and a housekeeper. `make test` spends
some seconds on it, `make fuzz` some minutes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import SkipTest
from zlib import crc32

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CheckFunction, load_all_checks
from schemathesis.core.result import Ok
from schemathesis.generation.hypothesis.builder import InvalidHeadersExampleMark, MissingPathParameters
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import positive_data_acceptance

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import Webhook
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support import one_slot
from tests.support.features import rows
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.least_privilege import url_of_user
from tests.support.receiver import SECRET

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "10"))
EXCLUDED: list[CheckFunction] = [positive_data_acceptance]
"""What fits the schema may still be refused: a cursor that no page gave out, a type that nobody runs, two fields that
exclude each other. Each such answer is a documented 422 all the same."""

LEFT_OUT = (InvalidHeadersExampleMark, MissingPathParameters)
"""What Schemathesis marks a test with whose requests it could not make all."""

PARTS = {"WEBHOOK_SECRETS": SECRET, "GATEWAY_PROCESSES": "1", "LOG_LEVEL": "WARNING", "REDIS_TIMEOUT": "20"}
NAMES: Mapping[str, Sequence[str]] = {
    "queues": ("normal", "low"),
    "schedules": ("nightly",),
    "admin": ("unlock", "ttl"),
    "limits": ("echo", "customer-1"),
    "types": ("echo", "process"),
}
"""Names that exist, by the first part of the path."""


def _document() -> Any:
    """The gateway tells what it answers without asking Redis."""
    app = create_app(Settings(**dict(rows("SETTINGS"))), connect("redis://127.0.0.1:1"))
    return app.test_client().get("/openapi.json").get_json()


DOCUMENT = _document()


@pytest.fixture(scope="module")
def schema() -> Any:
    """The document, for the process that runs the tests: `schema.parametrize` would prepare all requests in each."""
    load_all_checks()
    return schemathesis.openapi.from_dict(DOCUMENT)


def _operations() -> list[str]:
    paths = DOCUMENT["paths"].values()
    return [str(about["operationId"]) for operations in paths for about in operations.values()]


class Target:
    """A running system that holds something of everything."""

    def __init__(self, system: System) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        system.start_worker(WORKER_EXECUTORS="2")
        system.start_housekeeper()
        system.start("gateway", GATEWAY_PORT=str(port))
        wait_until(system.workers.all, "the worker is there")
        wait_until(lambda: self._answers(port), "the gateway answers")
        done, dead = system.submit("echo", "[1]"), system.submit("fail", retry={"max_retries": 0})
        self.tasks = [done, dead, system.submit("noop", queue="low")]
        hooked = system.submit("echo", "2", webhook=Webhook(url="http://10.0.0.1/", retry={"max_retries": 0}))
        for each in (*self.tasks, hooked):
            system.ended(each)
        self.tasks += [hooked, system.records.deliveries(system.records.get(hooked))[0].id]
        answer = httpx.post(f"{self.url}/tasks/batch", json={"tasks": [{"type": "echo", "data": 1}] * 3}, timeout=30)
        self.batch = answer.json()["batch_id"]

    @staticmethod
    def _answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def target(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    redis_server.start()
    with one_slot.client_of(redis_server) as client:
        client.flushall()
        folder = tmp_path_factory.mktemp("fuzz")
        with running_system(client, url_of_user(redis_server), folder, **PARTS) as system:
            yield Target(system)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def _is_answered_as_documented(case: schemathesis.Case[Any], target: Target) -> None:
    if case.meta is None or not case.meta.generation.mode.is_negative:
        _point_at_what_exists(case, target)
    case.call_and_validate(base_url=target.url, excluded_checks=EXCLUDED, timeout=30)


@pytest.mark.parametrize("operation", _operations())
def test_an_operation_is_answered_as_documented(operation: str, schema: Any, target: Target) -> None:
    chosen = schema.include(operation_id=operation)
    [built] = get_all_tests(schema=chosen, test_func=_is_answered_as_documented, settings=None, given_kwargs={})
    assert isinstance(built, Ok), built.err()
    _, test = built.ok()
    try:
        test(target=target)
    except SkipTest as error:
        pytest.fail(f"it was not asked: {error}")
    assert not any(mark.is_set(test) for mark in LEFT_OUT), "part of it was not asked"


def _point_at_what_exists(case: schemathesis.Case[Any], target: Target) -> None:
    """Half of the requests are about something that is there; made-up ids and types would end at the door."""
    chosen = crc32(repr((case.path_parameters, case.query, case.body)).encode())
    if "wait" in (case.query or {}):
        case.query["wait"] = 0.01
    if chosen % 2:
        return
    path = case.path_parameters or {}
    if "task_id" in path:
        path["task_id"] = target.tasks[chosen // 2 % len(target.tasks)]
    if "batch_id" in path:
        path["batch_id"] = target.batch
    names = NAMES.get(case.operation.path.split("/")[1], ())
    if "name" in path and names:
        path["name"] = names[chosen // 2 % len(names)]
    if isinstance(case.body, dict) and "type" in case.body:
        case.body |= {"type": "echo", "priority": "low"}
