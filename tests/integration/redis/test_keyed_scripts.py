"""A server that refuses scripts without keys: everything works there."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import ResponseError

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import connect
from tests.integration.redis.load import start_gateway
from tests.support.harness import free_port, running_system
from tests.support.keyed_scripts import keyed_scripts


def test_every_part_works_where_scripts_without_keys_are_refused(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with keyed_scripts(redis_url) as (url, refused):
        with connect(url, check_format=False) as client, pytest.raises(ResponseError, match="at least one key"):
            client.eval("return 1", 0)
        with connect(url) as client, running_system(client, url, tmp_path) as system:
            system.start("dashboard", DASHBOARD_PORT="0")
            system.start_worker(WORKER_EXECUTORS="2")
            system.start_housekeeper()
            start_gateway(system, port)
            done = system.submit_many([("noop", "null")] * 20)
            failed = system.submit("fail", '{"message": "as asked"}', retry={"max_retries": 1})
            assert {system.ended(each).summary.state for each in done} == {TaskState.COMPLETED}
            assert system.ended(failed).summary.state is TaskState.FAILED
            assert refused == [b"EVAL"], "the one of this test"
