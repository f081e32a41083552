"""Time-outs, retries and the pool of the way to Redis are as the settings say."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from redis.exceptions import ConnectionError as Broken

from firmq.shared.redis.client import connect
from tests.integration.redis.load import start_gateway
from tests.support.harness import System, free_port

NEW = json.dumps({"type": "noop", "data": None})


def submit(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("POST", "/tasks", NEW, {"Content-Type": "application/json"})
        return connection.getresponse().status


def connections(system: System) -> int:
    return sum(each["name"] == "gateway" for each in system.redis.client_list())


def test_a_process_of_the_gateway_has_no_more_connections_than_the_pool(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    port = free_port()
    start_gateway(system, port, REDIS_MAX_CONNECTIONS="2", REDIS_TIMEOUT="15")
    with ThreadPoolExecutor(12) as callers:
        calls, most = [callers.submit(submit, port) for _ in range(120)], 0
        while not all(each.done() for each in calls):
            most = max(most, connections(system))
        assert Counter(each.result() for each in calls) == {202: 120}
        assert 2 <= most <= 4, "two processes"


def test_a_longer_time_out_waits_for_a_redis_that_hangs_for_a_moment(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    impatient, patient = free_port(), free_port()
    start_gateway(system, impatient, REDIS_TIMEOUT="0.9")
    start_gateway(system, patient, REDIS_TIMEOUT="15")
    with ThreadPoolExecutor(2) as callers:
        system.redis.client_pause(4000)
        assert list(callers.map(submit, [impatient, patient])) == [503, 202]


@pytest.mark.parametrize("retries", [0, 3])
def test_a_command_is_sent_again_as_often_as_the_settings_say(retries: int, redis_url: str) -> None:
    tries: list[int] = []

    def break_off() -> None:
        tries.append(len(tries))
        raise Broken

    with connect(redis_url, retries=retries) as client, pytest.raises(Broken):
        client.connection_pool.connection_kwargs["retry"].call_with_retry(break_off, lambda error: None)
    assert len(tries) == retries + 1
