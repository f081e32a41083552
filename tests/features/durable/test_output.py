"""What handlers emit, read while they run and afterwards."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.client import Client, NotFound, OutputChunk
from firmq.shared.errors import LeaseEnded
from firmq.shared.features.durable.output import Outputs
from firmq.shared.features.durable.store import DurableSteps
from tests.integration.client.conftest import Running
from tests.integration.client.test_events import events_of, open_stream
from tests.integration.gateway.test_large_batches import resident
from tests.support.harness import free_port, wait_until
from tests.support.keys import keys

KINDS = pytest.mark.parametrize("kind", ["tell", "tell-threads", "tell-async"])
WORDS = ["one ", "two ", {"three": 3}, "four\n"]


@pytest.fixture(scope="module", autouse=True)
def worker(running: Running) -> None:
    running.system.start_worker(
        TASK_MODULES="tests.features.durable.handlers_output", INITIAL_RETRY_DELAY="0.05", MAX_OUTPUT_BYTES="4096"
    )


def chunks(found: Iterator[OutputChunk]) -> list[tuple[int, Any]]:
    return [(each.attempt, each.chunk) for each in found]


@KINDS
def test_chunks_come_in_order_while_the_task_runs(client: Client, tmp_path: Path, kind: str) -> None:
    task = client.submit(kind, {"folder": str(tmp_path), "words": WORDS, "fails": 1}).task_id
    stream = client.stream(task)
    assert chunks(next(stream) for _ in range(2)) == [(1, "one "), (1, "two ")]
    assert client.get(task).status == "running"
    (tmp_path / "go").touch()
    assert chunks(stream) == [(1, word) for word in WORDS[2:]] + [(2, word) for word in WORDS]
    assert len(list(client.stream(task))) == 8, "the output is there until the task is removed"


def test_a_reconnecting_stream_goes_on_behind_its_last_chunk(running: Running, client: Client, tmp_path: Path) -> None:
    task = client.submit("tell", {"folder": str(tmp_path), "words": WORDS}).task_id
    wait_until(lambda: running.system.redis.xlen(keys.output(task)) == 2, "the first half is there")
    connection, response = open_stream(running.url, f"/tasks/{task}/stream")
    first, second = events_of(response, 2)
    assert json.loads(first["data"]) == {"attempt": 1, "chunk": "one "}
    connection.close()
    connection, response = open_stream(running.url, f"/tasks/{task}/stream", **{"Last-Event-ID": first["id"]})
    (tmp_path / "go").touch()
    *rest, end = events_of(response)
    assert [rest[0], len(rest), end["event"], end["data"]] == [second, 3, "end", "{}"]
    connection.close()
    for known, status in ((end["id"], 204), ("no place", 200)):
        connection, response = open_stream(running.url, f"/tasks/{task}/stream", **{"Last-Event-ID": known})
        assert response.status == status
        assert len(events_of(response)) == (5 if status == 200 else 0)
        connection.close()


def test_what_a_step_emits_is_not_repeated(client: Client) -> None:
    task = client.submit("tell-once", {}).task_id
    assert client.result(task, 120) == 2
    assert chunks(client.stream(task)) == [(1, "once")]


def test_output_is_bounded_and_says_so(client: Client) -> None:
    task = client.submit("tell-much", {"chunks": 100, "size": 94}).task_id
    *found, last = client.stream(task)
    assert (len(found), last) == (32, OutputChunk(attempt=1, truncated=True))
    assert client.result(task, 120) == 100
    assert [each for each in client.get(task).attempts[0].logs if "MAX_OUTPUT_BYTES" in each]


def test_an_attempt_without_its_lease_adds_nothing_and_a_chunk_is_stored_once(running: Running) -> None:
    system = running.system
    redis = system.redis
    about: Any = {"state": "running", "token": "new", "origin": "normal", "description": "echo", "data": "[]"}
    with redis.pipeline() as both:  # else housekeeping may see the one without the other, and repair it
        both.hset(keys.rq_job("t"), mapping=about)
        both.zadd(keys.LEASES, {"t": system.scripts.now_us() + 200_000_000})
        both.execute()
    ours = DurableSteps(system.scripts, "t", "new", most=1, most_bytes=1, most_output=1000)
    old = DurableSteps(system.scripts, "t", "old", most=1, most_bytes=1, most_output=1000)
    try:
        with pytest.raises(LeaseEnded):
            old.emit(1, 1, b'"a"')
        for _ in range(2):
            assert ours.emit(2, 1, b'"a"')
        assert ours.emit(2, 2, b'"b"')
        assert [each.chunk for each in Outputs(redis).latest("t", 9)] == [b'"a"', b'"b"']
    finally:
        redis.delete(keys.rq_job("t"), keys.output("t"))


def test_entries_that_cannot_be_read_are_left_out(running: Running, client: Client) -> None:
    task = client.submit("tell-once", {}).task_id
    client.result(task, 120)
    strange: list[Any] = [{"attempt": "x"}, {"chunk": '"b"'}, {"attempt": 1, "chunk": "a\nb"}]
    for fields in [*strange, {"attempt": 1, "chunk": '"c"'}]:
        running.system.redis.xadd(keys.output(task), fields)
    assert chunks(client.stream(task)) == [(1, "once"), (1, "c")]


def test_more_than_a_page_comes_in_order_and_whole(running: Running, client: Client) -> None:
    texts = ["a" * 200_000, *map(str, range(300)), "b" * 40_000, "c" * 40_000, *map(str, range(130))]
    redis, task = running.system.redis, client.submit("echo", 1, delay=600).task_id
    for text in texts[:200]:
        redis.xadd(keys.output(task), {"attempt": 1, "chunk": json.dumps(text)})
    for _ in range(100):
        redis.xadd(keys.output(task), {"attempt": "x"})
    stream = client.stream(task)
    assert [next(stream).chunk for _ in range(200)] == texts[:200]
    for text in texts[200:]:
        redis.xadd(keys.output(task), {"attempt": 1, "chunk": json.dumps(text)})
    client.cancel(task)
    assert [each.chunk for each in stream] == texts[200:]
    assert [each.chunk for each in client.stream(task)] == texts


def test_no_task_has_no_stream(client: Client) -> None:
    with pytest.raises(NotFound):
        next(client.stream("none"))


def test_output_is_removed_with_its_task(running: Running, client: Client, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    task = client.submit("tell", {"folder": str(tmp_path), "words": WORDS, "fails": 9}, max_retries=0).task_id
    assert client.wait(task, 120).status == "failed"
    assert running.system.redis.exists(keys.output(task))
    running.system.dead_letters.purge(task)
    assert not running.system.redis.exists(keys.output(task))


def test_the_command_line_prints_and_the_dashboard_shows_it(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from urllib.request import urlopen

    from firmq.shared.cli.main import main

    with Client(running.url) as client:
        task = client.submit("tell", {"folder": str(tmp_path), "words": WORDS}).task_id
        (tmp_path / "go").touch()
        client.result(task, 120)
    running.system.redis.xadd(keys.output(task), {"attempt": "x"})
    assert main(["--url", running.url, "stream", task]) == 0
    assert capsys.readouterr().out == 'one two {"three": 3}\nfour\n'
    running.system.redis.xadd(keys.output(task), {"attempt": "1", "chunk": "{"})
    port = free_port()
    running.system.start("dashboard", DASHBOARD_PORT=str(port))
    wait_until(lambda: _page(port, "health/live"), "the dashboard answers")
    with urlopen(f"http://127.0.0.1:{port}/tasks/{task}", timeout=60) as answer:
        page = answer.read().decode()
    assert (
        '<pre tabindex="0" aria-label="Output"><code>one two {&#34;three&#34;: 3}\nfour\n(unreadable)\n</code>' in page
    )


def _page(port: int, path: str) -> bool:
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        return bool(urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5).status == 200)
    except URLError:
        return False


def test_output_that_is_not_read_takes_little_memory(running: Running) -> None:
    def memory() -> int:
        pid = running.gateway.pid
        return resident(list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())))

    with Client(running.url) as client, ExitStack() as stack:
        task = client.submit("echo", 1, delay=600).task_id
        for _ in range(90):
            running.system.redis.xadd(keys.output(task), {"attempt": 1, "chunk": f'"{"x" * 10_000}"'})
        before = memory()
        callers = [stack.enter_context(closing(socket.socket())) for _ in range(150)]
        for each in callers:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", int(running.url.rpartition(":")[2])))
            each.sendall(f"GET /tasks/{task}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: select.select(callers, [], [], 0)[0] == callers, "all are answered")
        with callers[-1].makefile("rb") as response:
            assert sum(1 for _ in islice((line for line in response if line.startswith(b"data:")), 90)) == 90
        assert memory() - before < 60
        client.cancel(task)
