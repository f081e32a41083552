"""Streams of events: what they tell, whom they cost what, and how they end."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.gateway.events.broadcaster import UNREAD_BYTES, Broadcaster, Snapshot, Stream, Watch
from firmq.shared.client import Client, TaskState, new_task
from firmq.shared.submission.refusals import Refusal
from tests.integration.client.conftest import Running, start_gateway
from tests.support.figures import judge_since
from tests.support.harness import free_port, wait_until


def open_stream(url: str, path: str, **headers: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=60)
    connection.request("GET", path, headers={"Accept": "text/event-stream", **headers})
    return connection, connection.getresponse()


def events_of(response: http.client.HTTPResponse, most: int = 1000) -> list[dict[str, str]]:
    """The events until the stream ends, or so many of them."""
    found: list[dict[str, str]] = []
    event: dict[str, str] = {}
    while len(found) < most and (line := response.readline().decode()):
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            event[name] = value
        else:
            found += [event] if "data" in event else []
            event = {}
    return found


def test_a_task_is_followed_through_its_states_and_progress_to_its_end(client: Client, tmp_path: Path) -> None:
    task = client.submit("until-there", {"file": str(tmp_path / "end")}).task_id
    seen = []
    for each in client.watch(task):
        seen.append(each)
        if each.progress:
            (tmp_path / "end").touch()
    assert seen[-1].status is TaskState.COMPLETED
    assert TaskState.RUNNING in {each.status for each in seen}
    assert any(each.progress and each.progress.message == "reading" for each in seen)
    assert len(seen) == len(set(seen))


def test_a_batch_is_followed_to_its_end(client: Client) -> None:
    feed = client.batch([new_task("slowly", {"seconds": 0.3}) for _ in range(6)]).drain()
    assert feed.batch_id
    seen = list(client.batches.watch(feed.batch_id))
    assert seen[-1].status == "ended"
    assert seen[-1].counts["completed"] == 6
    assert [each.ended for each in seen] == sorted(each.ended for each in seen)


def test_a_reconnecting_stream_gets_only_new_events(running: Running, client: Client) -> None:
    task = client.submit("echo", 1, delay=60).task_id
    connection, response = open_stream(running.url, f"/tasks/{task}/events")
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
    [first] = events_of(response, 1)
    assert first["event"] == "state"
    connection.close()
    connection, response = open_stream(running.url, f"/tasks/{task}/events", **{"Last-Event-ID": first["id"]})
    client.cancel(task)
    [last] = events_of(response)
    assert last["event"] == "end"
    assert '"status":"cancelled"' in last["data"]
    connection.close()
    connection, response = open_stream(running.url, f"/tasks/{task}/events", **{"Last-Event-ID": last["id"]})
    assert response.status == 204
    connection.close()


def test_what_does_not_exist_is_not_found(running: Running) -> None:
    for path in ("/tasks/none/events", "/batches/none/events"):
        connection, response = open_stream(running.url, path, Accept="text/event-stream, application/problem+json")
        assert response.status == 404
        connection.close()


def commands(redis: Redis) -> int:
    info: Any = redis.info("stats")
    return int(info["total_commands_processed"])


def test_two_hundred_watchers_cost_redis_as_much_as_one(running: Running, client: Client) -> None:
    task = client.submit("echo", 1, delay=600).task_id

    def costs() -> list[int]:
        """Of some times: what else there was to do is not in all of them."""
        found = [commands(running.system.redis)]
        for _ in range(4):
            time.sleep(1)
            found.append(commands(running.system.redis))
        return [after - before for before, after in pairwise(found)]

    with ExitStack() as stack:
        connection, response = open_stream(running.url, f"/tasks/{task}/events")
        stack.enter_context(closing(connection))
        events_of(response, 1)
        one = max(costs())
        streams = [response]
        for _ in range(199):
            connection, response = open_stream(running.url, f"/tasks/{task}/events")
            stack.enter_context(closing(connection))
            events_of(response, 1)
            streams.append(response)
        many = min(costs())
        assert many < one + 100, f"one stream: {one} commands in a second, 200 streams: {many}"
        begun = time.monotonic()
        for n in range(40):
            client.submit("echo", n)
        judge_since("40 submissions beside 200 streams", begun, 8)
        client.cancel(task)
        for each in streams:
            assert events_of(each)[-1]["event"] == "end"


def test_streams_are_bounded_and_a_closed_one_frees_its_place(running: Running, client: Client) -> None:
    task = client.submit("echo", 1, delay=600).task_id
    with ExitStack() as stack:
        opened = []
        for _ in range(400):
            connection, response = open_stream(running.url, f"/tasks/{task}/events")
            stack.enter_context(closing(connection))
            opened.append((connection, response))
            if response.status != 200:
                break
        while opened[-1][1].status == 200:
            connection, response = open_stream(running.url, f"/tasks/{task}/events")
            stack.enter_context(closing(connection))
            opened.append((connection, response))
        refused = opened[-1][1]
        assert refused.status == 503
        assert refused.headers["Retry-After"]
        assert b"too-many-streams" in refused.read()
        for connection, response in opened[:5]:
            response.close()
            connection.close()

        def opens() -> bool:
            connection, response = open_stream(running.url, f"/tasks/{task}/events")
            stack.enter_context(closing(connection))
            return response.status == 200

        wait_until(opens, "a place became free")
    client.cancel(task)


def test_a_client_continues_its_stream_at_the_next_gateway(running: Running, client_class: type[Client]) -> None:
    port = free_port()
    gateway = start_gateway(running.system, port)
    with client_class(f"http://127.0.0.1:{port}", patience=40) as client:
        task = client.submit("echo", 1, delay=600).task_id
        with closing(client.watch(task)) as seen:
            assert next(seen).status is TaskState.SCHEDULED
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(60) == 0
            start_gateway(running.system, port)
            client.cancel(task)
            assert [each.status for each in seen] == [TaskState.CANCELLED]


class Sink:
    """Keeps what is said."""

    def __init__(self, unread: int = 0) -> None:
        self.said: list[bytes] = []
        self.unread = unread

    def send(self, data: bytes) -> bool:
        self.said.append(data)
        return True

    def end(self) -> None:
        self.said.append(b"END")

    def disconnect(self) -> None:
        self.said.append(b"DISCONNECTED")
        self.unread = 0


def seen(watched: Collection[Watch]) -> Iterator[tuple[Watch, Snapshot]]:
    return ((each, Snapshot(b"{}", False)) for each in watched)


def test_a_silent_stream_gives_a_sign_of_life_and_what_is_removed_ends_it() -> None:
    broadcaster = Broadcaster(seen, threading.Event())
    stream, sink = Stream(broadcaster, ("task", "1"), None), Sink()
    stream.begin(sink)
    now = stream.spoke_at
    stream.publish(Snapshot(b"{}", False), now)
    stream.publish(Snapshot(b"{}", False), now + 14)
    assert len(sink.said) == 1
    assert sink.said[0].startswith(b"event: state\nid: ")
    stream.publish(Snapshot(b"{}", False), now + 16)
    assert sink.said[1:] == [b": still here\n\n"]
    stream.publish(None, now + 17)
    assert sink.said[2:] == [b"event: gone\ndata: {}\n\n", b"END"]


def test_a_stream_that_begins_while_the_gateway_stops_ends_at_once() -> None:
    stopping = threading.Event()
    broadcaster = Broadcaster(seen, stopping)
    stopping.set()
    stream, _ = broadcaster.open(("task", "1"), None)
    assert stream is not None
    wait_until(lambda: not broadcaster.streams, "the streams are ended, before this one has begun")
    sink = Sink()
    stream.begin(sink)
    assert sink.said == [b"END"]


def test_a_client_has_at_most_as_many_streams_as_are_left_for_the_others() -> None:
    broadcaster = Broadcaster(seen, threading.Event(), most=16)
    broadcaster.thread = threading.current_thread()  # no rounds
    opened = Counter[str]()
    for client in "aaaaaaaaabbbbbccc":
        with suppress(Refusal):
            broadcaster.open(("task", "1"), None, client)
            opened[client] += 1
    assert opened == {"a": 8, "b": 4, "c": 2}
    for _ in range(2):
        assert broadcaster.open(("task", "1"), None)[0], "without keys all are for all"
    with pytest.raises(Refusal, match="16 event streams are open"):
        broadcaster.open(("task", "1"), None)


def test_nothing_is_read_for_a_client_that_does_not_read_and_the_largest_gives_way() -> None:
    asked: list[Watch] = []

    def look(watched: Collection[Watch]) -> Iterator[tuple[Watch, Snapshot]]:
        asked.extend(watched)
        return seen(watched)

    broadcaster = Broadcaster(look, threading.Event())
    broadcaster.thread = threading.current_thread()  # no rounds of its own
    sinks = [Sink(each) for each in (UNREAD_BYTES // 2, UNREAD_BYTES, 0)]
    for at, sink in enumerate(sinks):
        stream, _ = broadcaster.open(("task", str(at)), None)
        assert stream is not None
        stream.begin(sink)
        stream.last_event_id = "before"
    asked.clear()
    broadcaster.round(list(broadcaster.streams))
    assert asked == [(("task", "2"), "before")]
    sinks[2].unread = 1
    broadcaster.bound_unread()
    assert [each.said[-1:] for each in sinks[:2]] == [[], [b"DISCONNECTED"]]
    assert sinks[2].said != [b"DISCONNECTED"]
