"""What a client sends arrives once: answers get lost, gateways die, Redis goes away, and tasks come by the thousand."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import socket
import sqlite3
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from firmq.shared.client import Client, Refused, Unavailable, Unreachable, new_task, senders
from firmq.shared.client import feed as feeding
from firmq.shared.client.aio import feed as async_feed
from firmq.shared.client.aio import transport as async_transport
from firmq.shared.client.answers import BatchItem
from firmq.shared.client.connections import Connections
from firmq.shared.client.interface import TaskClient
from firmq.shared.client.response import Answer
from firmq.shared.client.transport import Transport
from firmq.worker.executors.process_tree import children
from firmq.worker.local import LocalClient
from tests.integration.client.conftest import Running, start_gateway
from tests.integration.client.relay import LossyRelay
from tests.support.figures import judge_since
from tests.support.harness import free_port, wait_until


def port_of(running: Running) -> int:
    return int(running.url.rpartition(":")[2])


def test_a_task_whose_answer_was_lost_is_stored_once(running: Running, client_class: type[Client], tag: str) -> None:
    relay = LossyRelay(port_of(running), lose=2)
    with client_class(f"http://127.0.0.1:{relay.port}", patience=60) as client:
        task = client.submit("echo", "lost", tags=[tag])
        assert [each.task_id for each in client.tasks(tag=tag)] == [task.task_id]
    assert relay.connections >= 3
    relay.close()


def test_what_cannot_be_repeated_is_not_sent_again(
    running: Running, client: Client, client_class: type[Client]
) -> None:
    task = client.submit("echo", 1, delay=60).task_id
    relay = LossyRelay(port_of(running), lose=1)
    with client_class(f"http://127.0.0.1:{relay.port}") as lossy, pytest.raises(Unreachable):
        lossy.cancel(task)
    assert relay.connections == 1
    relay.close()


def test_a_batch_continues_where_its_answer_was_cut_off(
    running: Running, client: Client, client_class: type[Client]
) -> None:
    relay = LossyRelay(port_of(running), lose=3, keep=20_000)
    with client_class(f"http://127.0.0.1:{relay.port}") as lossy:
        feed = lossy.batch((new_task("echo", n, tags=["cut-off"]) for n in range(3000)), name="cut off")
        items = list(feed)
    relay.close()
    assert [each.index for each in items] == list(range(3000))
    assert relay.connections >= 4
    assert len({each.task_id for each in items}) == 3000
    assert feed.batch_id
    ended = client.batches.wait(feed.batch_id, 120)
    assert (ended.total, ended.counts["completed"]) == (3000, 3000)


def test_each_task_of_a_batch_is_answered_by_itself(client: Client) -> None:
    tasks = [new_task("echo", 0, item="first"), new_task("nonsense"), new_task("gather", depends_on=["first"])]
    tasks[2]["depends_on"] = [{"item": "first"}]
    feed = client.batch(tasks, name="mixed", then=new_task("gather"))
    first, wrong, child = feed
    assert first.accepted
    assert not wrong.accepted
    assert wrong.problem
    assert wrong.problem["type"] == "/problems/unknown-task-type"
    assert (feed.accepted, feed.refused, feed.complete) == (2, 1, True)
    assert child.task_id
    assert client.result(child.task_id, 120) == {first.task_id: 0}


def test_terms_that_are_wrong_refuse_the_batch(client: Client) -> None:
    with pytest.raises(Refused, match="max_running"):
        client.batch([new_task("echo", 1)], max_running=0).drain()


def test_a_list_is_sent_at_once_and_its_answers_stay(client: Client, tag: str) -> None:
    feed = client.batch([new_task("noop", n, tags=[tag]) for n in range(5)])
    assert len(list(client.tasks(tag=tag))) == 5, "without a look at the result"
    assert feed.complete
    assert [item.index for item in feed] == [item.index for item in feed] == [0, 1, 2, 3, 4]
    assert feed.drain().accepted == 5


def test_a_list_that_cannot_be_sent_is_an_error_that_says_how_to_send_the_rest(client_class: type[Client]) -> None:
    with client_class(f"http://127.0.0.1:{free_port()}", patience=0) as nobody, pytest.raises(Unreachable) as caught:
        nobody.batch([new_task("noop", 1)], idempotency_key="monday")
    assert "0 tasks of this batch were accepted before" in caught.value.__notes__[0]
    assert "idempotency_key='monday'" in caught.value.__notes__[0]


@pytest.mark.parametrize("local", [False, True], ids=["gateway", "local"])
def test_a_batch_that_is_made_on_the_way_and_never_sent_is_warned_of(client: Client, local: bool, tag: str) -> None:
    queue: TaskClient = LocalClient(["tests.support.handlers"]) if local else client
    with pytest.warns(RuntimeWarning, match="a batch was never sent: iterate over it"):
        queue.batch(new_task("noop", n, tags=[tag]) for n in range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sent = queue.batch(new_task("noop", n, tags=[f"sent-{tag}"]) for n in range(5)).drain()
        at_once = queue.batch([new_task("noop", n, tags=[f"sent-{tag}"]) for n in range(5)])
        assert (sent.accepted, at_once.accepted) == (5, 5)
        del sent, at_once
        gc.collect()
    assert (len(list(queue.tasks(tag=tag))), len(list(queue.tasks(tag=f"sent-{tag}")))) == (0, 10)


def test_a_batch_may_be_made_slowly_and_answers_come_meanwhile(client: Client) -> None:
    def slowly() -> Iterator[dict[str, Any]]:
        until = time.monotonic() + 30
        while not feed.accepted:
            assert time.monotonic() < until, "no answer comes meanwhile"
            time.sleep(0.1)
            yield new_task("echo", 0)

    feed = client.batch(slowly())
    assert len(list(feed)) == feed.accepted


def test_the_end_of_a_burst_leaves_while_the_next_task_is_made(client: Client, tag: str) -> None:
    def arrived(many: int) -> bool:
        return len(list(client.tasks(tag=tag))) == many

    def in_bursts() -> Iterator[dict[str, Any]]:
        for many in (3, 6):
            for n in range(3):
                yield new_task("noop", n, tags=[tag])
            wait_until(partial(arrived, many), "all of the burst has arrived", 30)

    assert client.batch(in_bursts()).drain().accepted == 6


@pytest.mark.parametrize("client_class", [Client])
def test_tasks_are_made_in_the_thread_of_the_caller(client: Client) -> None:
    rows = sqlite3.connect(":memory:").execute("values (1), (2), (3)")
    assert client.batch(new_task("noop", row[0]) for row in rows).drain().accepted == 3


@pytest.mark.parametrize("client_class", [Client])
def test_a_batch_abandoned_midway_leaves_no_thread(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "LEAVE", 60)  # a sender may be in the middle of a page, on a slow machine for long
    items = iter(client.batch(new_task("noop", n) for n in itertools.count()))
    assert next(items).accepted
    assert any(each.name == "batch sender" for each in threading.enumerate())
    items.close()  # type: ignore[attr-defined]  # a generator
    assert not any(each.name == "batch sender" for each in threading.enumerate())


def test_what_was_made_before_an_error_is_kept_and_the_batch_is_closed_with_it(client: Client) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        for n in range(1500):
            yield new_task("noop", n)
        raise LookupError("row 1500 is missing")

    feed = client.batch(broken())
    items: list[BatchItem] = []
    with pytest.raises(LookupError, match="row 1500") as caught:
        items.extend(feed)
    assert len(items) == feed.accepted == 1500
    assert feed.batch_id
    assert f"batch {feed.batch_id} was closed with the 1500 tasks" in caught.value.__notes__[0]
    assert client.batches.get(feed.batch_id).status != "receiving"
    assert client.batches.wait(feed.batch_id, 120).total == 1500


def test_an_error_before_the_first_task_begins_no_batch(client: Client) -> None:
    feed = client.batch(new_task(each, 1) for each in [""] if 1 / len(each))
    with pytest.raises(ZeroDivisionError):
        feed.drain()
    assert feed.batch_id is None


def set_in_feeds(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    for module in (feeding, async_feed):
        monkeypatch.setattr(module, name, value)


def pages_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The first index and the number of tasks of each page that is sent from here on."""
    sent: list[tuple[int, int]] = []

    def note(transport: type[Transport | async_transport.Transport]) -> None:
        ask = transport.ask

        def noted(self: Any, method: str, path: str, **more: Any) -> Any:
            if path.endswith("/tasks"):
                body = json.loads(more["body"])
                sent.append((body["start"], len(body["tasks"])))
            return ask(self, method, path, **more)

        monkeypatch.setattr(transport, "ask", noted)

    note(Transport)
    note(async_transport.Transport)
    return sent


def test_tasks_that_are_made_quickly_leave_many_at_a_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    set_in_feeds(monkeypatch, "GATHER", 60.0)
    sent = pages_of(monkeypatch)
    client.batch(new_task("noop", n) for n in range(2500)).drain()
    assert sorted(sent) == [(0, 1000), (1000, 1000), (2000, 500)]
    sent.clear()
    client.batch(new_task("noop", "x" * 100_000) for _ in range(5)).drain()
    assert sorted(sent) == [(0, 2), (2, 2), (4, 1)], "pages are bounded in bytes too"


def test_a_page_with_dependencies_is_sent_after_the_pages_before_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in_feeds(monkeypatch, "GATHER", 60.0)
    tasks = [new_task("noop", n, depends_on=[n - 1] if n else None) for n in range(3000)]
    feed = client.batch(tasks)
    assert (feed.accepted, feed.refused) == (3000, 0)


def test_a_page_that_is_too_large_for_the_gateway_is_divided(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    set_in_feeds(monkeypatch, "GATHER", 60.0)
    set_in_feeds(monkeypatch, "PAGE_BYTES", 4 << 20)
    sent = pages_of(monkeypatch)
    sizes = [600_000, 600_000, 2_000_000, 10]
    items = list(client.batch([new_task("noop", "x" * size) for size in sizes]))
    assert [each.accepted for each in items] == [True, True, False, True]
    assert [each.index for each in items] == [0, 1, 2, 3]
    assert items[2].problem
    assert items[2].problem["type"] == "/problems/too-large"
    assert sent == [(0, 4), (0, 2), (0, 1), (1, 1), (2, 2), (2, 1), (3, 1)]


def test_a_task_that_cannot_be_read_is_refused_without_the_others_of_its_page(client: Client) -> None:
    deep: Any = None
    for _ in range(100):
        deep = [deep]
    items = list(client.batch([new_task("noop", data) for data in (1, deep, 2, "\ud800", 3)]))
    assert [each.accepted for each in items] == [True, False, True, False, True]
    assert {each.problem["type"] for each in items if each.problem} == {"/problems/invalid-json"}


def test_a_batch_of_thousands_takes_no_memory(client: Client) -> None:
    def many() -> Iterator[dict[str, Any]]:
        return (new_task("noop", "x" * 2000) for _ in range(6_000))

    tracemalloc.start()
    feed = client.batch(many()).drain()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (feed.accepted, feed.complete) == (6_000, True)
    assert most < 8_000_000, f"{most} bytes for 12 MB of tasks"


def test_a_gateway_that_is_killed_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    running: Running, client_class: type[Client]
) -> None:
    port = free_port()
    gateway = start_gateway(running.system, port)
    with client_class(f"http://127.0.0.1:{port}", patience=40) as client:
        feed = client.batch((new_task("noop", n, tags=["killed"]) for n in range(8000)), name="killed")
        items = []
        for item in feed:
            items.append(item)
            if len(items) == 2000:
                [serving] = children(gateway.pid)
                os.kill(serving, signal.SIGKILL)
        assert [each.index for each in items] == list(range(8000))
        assert feed.batch_id
        assert client.batches.wait(feed.batch_id, 120).total == 8000
    gateway.terminate()


def test_a_client_waits_as_long_as_it_is_told_and_no_longer_than_its_patience(client_class: type[Client]) -> None:
    naps: list[float] = []
    answers = [(503, "2"), (429, "1"), (503, None)]

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, after = answers[min(len(naps), 2)]
            body = b'{"title":"Store unavailable","status":503,"type":"/problems/store-unavailable","detail":"later"}'
            self.send_response(status)
            if after:
                self.send_header("Retry-After", after)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    now = [0.0]

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    with (
        client_class(
            f"http://127.0.0.1:{server.server_port}", patience=20, sleep=sleep, clock=lambda: now[0]
        ) as client,
        pytest.raises(Unavailable, match="Store unavailable: later"),
    ):
        client.get("x")
    server.shutdown()
    server.server_close()
    assert 2 <= naps[0] <= 2.5
    assert 1 <= naps[1] <= 1.25
    assert sum(naps) <= 20


@pytest.mark.parametrize(
    ("answers", "keys"),
    [
        (["unchanged", "unchanged", "done"], 3),
        (["unknown", "unchanged", "done"], 1),
        (["unchanged", "lost", "unchanged", "done"], 2),
    ],
)
def test_a_random_key_is_made_anew_while_nothing_was_changed(
    answers: list[str], keys: int, client_class: type[Client]
) -> None:
    """With several partitions, the key decides about the partition, and that may be the one that is away."""
    sent: list[str] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = answers[len(sent)]
            sent.append(self.headers["Idempotency-Key"])
            if answer == "lost":
                return
            problem = {"title": "Store unavailable", "status": 503, "unchanged": answer == "unchanged"}
            accepted = {"task_id": "t", "status": "pending", "type": "echo", "queue": "normal", "warnings": []}
            body = json.dumps(accepted if answer == "done" else problem).encode()
            self.send_response(202 if answer == "done" else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with client_class(f"http://127.0.0.1:{server.server_port}", sleep=lambda seconds: None) as client:
        assert client.submit("echo").task_id == "t"
    server.shutdown()
    server.server_close()
    assert len(sent) == len(answers)
    assert len(set(sent)) == keys, sent


def test_what_cannot_be_repeated_is_sent_again_after_a_429_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 503 may say that it was done, but not copied to as many replicas as asked for."""
    sent: list[str] = []
    answers = iter([429, 503])

    def request(connections: Connections, method: str, *_: object, reuse: bool) -> Answer:
        sent.append(method)
        return Answer(
            next(answers),
            HTTPMessage(),
            b'{"title":"Later","type":"/problems/store-unavailable","detail":"it is stored"}',
        )

    monkeypatch.setattr(Connections, "request", request)
    with Client("http://127.0.0.1:1", sleep=lambda _: None) as client, pytest.raises(Unavailable):
        client.cancel("x")
    assert sent == ["DELETE", "DELETE"]


class CutStream:
    """Connections that are cut after a sign of life; the fourth tells the end."""

    status = 200
    headers = HTTPMessage()
    headers["Content-Type"] = "text/event-stream; charset=utf-8"

    def __init__(self, now: list[float], tries: list[float]) -> None:
        self.now, self.tries = now, tries
        self.lines: list[bytes] = []

    def __enter__(self) -> CutStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def request(self, *_: object, **__: object) -> None:
        self.tries.append(self.now[0])
        end = [b"event: gone\n", b"data: {}\n", b"\n"]
        self.lines = end if len(self.tries) > 3 else [b": still here\n", b""]

    def getresponse(self) -> CutStream:
        return self

    def readline(self, _: int) -> bytes:
        self.now[0] += 14
        return self.lines.pop(0)

    def close(self) -> None:
        pass


def test_signs_of_life_renew_the_patience_of_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tries: list[float] = []

    monkeypatch.setattr(Connections, "connect", lambda *_: CutStream(now, tries))
    with Client("http://127.0.0.1:1", patience=15, sleep=lambda _: None, clock=lambda: now[0]) as client:
        assert list(client.watch("x")) == []
    assert tries == [0, 28, 56, 84]


@contextmanager
def _refusing() -> Iterator[int]:
    yield free_port()


@contextmanager
def _dropping() -> Iterator[int]:
    """A port whose queue of connections is full: what is sent there is dropped, as by a host that is gone."""
    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        yield full.getsockname()[1]


@pytest.mark.parametrize("away", [_refusing, _dropping])
def test_a_gateway_that_is_away_holds_up_a_submission_for_about_two_seconds(
    away: Callable[[], AbstractContextManager[int]],
    client_class: type[Client],
) -> None:
    with away() as port, client_class(f"http://127.0.0.1:{port}") as client:
        began = time.monotonic()
        with pytest.raises(Unreachable, match="does not answer"):
            client.submit("echo", 1)
        assert time.monotonic() - began > 1
        judge_since("a submission to a gateway that is away", began, 4)


def test_what_takes_its_time_is_tried_for_longer_than_a_submission_unless_one_number_is_given(
    client_class: type[Client],
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def tried_for(call: Callable[[Client], object], **settings: float) -> float:
        now[0] = 0.0
        with client_class(f"http://127.0.0.1:{port}", sleep=sleep, clock=lambda: now[0], **settings) as client:  # type: ignore[arg-type]
            with pytest.raises(Unreachable):
                call(client)
            return now[0]

    port = free_port()
    lasting: list[Callable[[Client], object]] = [
        lambda client: client.batch([new_task("noop", 1)]),
        lambda client: client.wait("x"),
        lambda client: list(client.watch("x")),
    ]
    assert tried_for(lambda client: client.submit("noop")) <= 2
    for call in lasting:
        assert 20 < tried_for(call) <= 30
        assert 5 < tried_for(call, patience=10) <= 10
    assert 5 < tried_for(lambda client: client.submit("noop"), patience=10) <= 10


def test_an_unreachable_gateway_is_one_line(client_class: type[Client]) -> None:
    port = free_port()
    with (
        client_class(f"http://127.0.0.1:{port}", patience=0) as client,
        pytest.raises(Unreachable, match="does not answer"),
    ):
        client.submit("echo", 1)
