"""Places for streams in a process of the gateway: how many there are, and who has to leave one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from types import SimpleNamespace

import pytest
from werkzeug.test import EnvironBuilder

from gateway.http import errors, streams
from gateway.http.errors import Refusal
from gateway.http.ndjson import PATIENCE, Lines
from gateway.http.streams import Body, Connection, Streams
from shared.stores.api_keys import Scope, new_key
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway
from tests.support.harness import wait_until

Open = Callable[[], "Caller"]


class Caller:
    """Somebody who sends a stream, in chunks."""

    def __init__(self, place: Streams, key: str = "") -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        about = EnvironBuilder(path="/tasks/batch", method="POST", content_type="application/x-ndjson")
        environ = about.get_environ() | ({"HTTP_AUTHORIZATION": f"Bearer {key}"} if key else {})
        place.take(theirs, b"", None, environ, False)

    def send(self, number: int) -> None:
        line = json.dumps({"type": "process", "data": number}).encode() + b"\n"
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(line), line))

    def status(self) -> int:
        """Of the answer, once its first task is answered or it is refused: a stream only waits from then on."""
        answer = b""
        while b'"index":0' not in answer and (data := self.socket.recv(65536)):
            answer += data
        return int(answer.split(b" ", 2)[1])

    def rest(self) -> bytes:
        return b"".join(iter(lambda: self.socket.recv(65536), b""))


@pytest.fixture
def place(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """Where nobody counts as slow."""
    monkeypatch.setattr(streams, "SLOW_AFTER", 1e9)
    monkeypatch.setattr(streams, "LINGER", 0.1)
    monkeypatch.setattr(streams, "ROOM_WITHIN", 30.0)
    place = Streams(gateway.app)  # type: ignore[arg-type]  # Flask names its own types
    yield place
    wait_until(lambda: place.running == 0, "all streams ended")


@pytest.fixture
def open_stream(place: Streams) -> Iterator[Open]:
    callers: list[Caller] = []

    def begin() -> Caller:
        callers.append(Caller(place))
        return callers[-1]

    yield begin
    for each in callers:
        each.socket.close()


def test_streams_beyond_what_is_taken_are_told_to_come_again(open_stream: Open, place: Streams) -> None:
    taken = [open_stream() for _ in range(streams.MOST)]
    for each in taken:
        each.send(1)
        assert each.status() == 207
    late = open_stream()
    late.send(1)
    answer = late.rest()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in answer
    taken[0].socket.sendall(b"0\r\n\r\n")
    assert b'"complete":true' in taken[0].rest()
    again = open_stream()
    again.send(1)
    assert again.status() == 207


def test_a_slow_stream_leaves_its_place_to_somebody_who_comes(
    open_stream: Open, place: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [open_stream() for _ in range(streams.MOST)]
    for each in taken:
        each.send(1)
        assert each.status() == 207
    monkeypatch.setattr(streams, "SLOW_AFTER", 0.0)
    for _ in range(2 * streams.MOST):
        wait_until(lambda: any(each._waits_since and each.slow for each in [*place.open]), "one of them just waits")
        late = open_stream()
        late.send(1)
        assert late.status() == 207, "those that do nothing keep nobody out"
    rest = taken[0].rest()
    assert b"/problems/too-many-streams" in rest
    assert b'"complete"' not in rest


@pytest.mark.parametrize(
    "size", [b"-5", b"0x10", b"+3", b"", b" 5", b"5 ", b"g", b"1_0", b"0" * 9, b"ffffffffffffffff"], ids=repr
)
def test_the_size_of_a_chunk_is_hexadecimal_digits_and_nothing_else(open_stream: Open, size: bytes) -> None:
    caller = open_stream()
    caller.socket.sendall(size + b"\r\n{}{}{}\n\r\n0\r\n\r\n")
    answer = caller.rest()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"one to eight hexadecimal digits" in answer


def test_a_chunk_that_is_longer_than_it_says_ends_the_stream(open_stream: Open) -> None:
    caller = open_stream()
    caller.send(1)
    assert caller.status() == 207
    caller.socket.sendall(b"3\r\n{}{}{}\r\n0\r\n\r\n")
    rest = caller.rest()
    assert b"/problems/bad-request" in rest
    assert b'"complete"' not in rest


@pytest.mark.parametrize("drip", [b"\n", b" \n\n", b"x"], ids=repr)
def test_only_whole_lines_count_as_progress(drip: bytes) -> None:
    now = [0.0]

    class Slow:
        """Sends a task, and then something every now and then."""

        def __init__(self) -> None:
            self.parts: Iterator[bytes] = cycle([drip])
            self.first = b"{}\n"

        def read(self, size: int) -> bytes:
            now[0] += PATIENCE / 4
            data, self.first = self.first or next(self.parts), b""
            return data

    groups = Lines(Slow(), 1000, 10, lambda: now[0]).groups()
    assert next(groups) == [b"{}"]
    now[0] += 1000  # Redis may take its time
    with pytest.raises(Refusal) as caught:
        next(groups)
    assert caught.value.kind is errors.TOO_SLOW


def test_a_sender_who_falls_silent_is_told_so(open_stream: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.2)
    caller = open_stream()
    assert caller.rest().startswith(b"HTTP/1.1 408 ")


def test_who_has_no_key_takes_no_place_and_moves_nobody(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them come and stay: four streams with a key that are slow go on, and another one is answered."""
    monkeypatch.setattr(streams, "SLOW_AFTER", 0.0)
    monkeypatch.setattr(streams, "LINGER", 60.0)
    monkeypatch.setattr(streams, "ROOM_WITHIN", 30.0)
    (good, text), (reads, reader) = new_key("shop", [Scope.SUBMIT]), new_key("report", [Scope.READ])
    place = Streams(make_gateway(api_keys=(good.line, reads.line)).app)  # type: ignore[arg-type]  # as above
    taken = [Caller(place, text) for _ in range(streams.MOST)]
    for each in taken:
        each.send(1)
        assert each.status() == 207
    wait_until(lambda: all(each.slow for each in [*place.open]), "all of them are slow")
    strangers = [Caller(place, reader if number % 4 else "") for number in range(streams.MOST_WAITING - streams.MOST)]
    for number, each in enumerate(strangers):
        assert each.status() == (403 if number % 4 else 401)
    wait_until(lambda: place.lingering == len(strangers), "they stay when they have been told")
    assert not any(each.leaves for each in place.open)
    late = Caller(place, text)
    late.send(1)
    assert late.status() == 207, "a slow one leaves only for somebody who may send"
    for each in strangers:
        each.socket.close()
    for each in [late, *taken]:
        each.socket.close()
    wait_until(lambda: place.running == 0, "all of them ended")
    assert place.lingering == 0


def test_strangers_who_stay_are_a_bounded_number(make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER", 60.0)
    monkeypatch.setattr(streams, "MOST_LINGERING", 2)
    place = Streams(make_gateway(api_keys=(new_key("shop", [Scope.SUBMIT])[0].line,)).app)  # type: ignore[arg-type]
    strangers = [Caller(place) for _ in range(5)]
    for each in strangers:
        assert each.status() == 401
    wait_until(lambda: place.running == 2, "the others are cut off")
    for each in strangers:
        each.socket.close()
    wait_until(lambda: place.running == 0, "all of them ended")


def test_what_follows_the_last_chunk_is_bounded(open_stream: Open) -> None:
    few, many, long = (open_stream() for _ in range(3))
    for caller, trailers in ((few, b"a: b\r\n" * 16), (many, b"a: b\r\n" * 17), (long, b"a: " + b"b" * 300 + b"\r\n")):
        caller.send(1)
        caller.socket.sendall(b"0\r\n" + trailers + b"\r\n")
    assert b'"complete":true' in few.rest()
    for caller in (many, long):
        rest = caller.rest()
        assert b"/problems/bad-request" in rest
        assert b'"complete":true' not in rest


@pytest.mark.parametrize("begin", [b"", b"0\r\n"], ids=["size of a chunk", "trailers"])
def test_a_line_that_comes_byte_by_byte_does_not_count_as_progress(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Drip:
        """A connection that gives a byte every five seconds, for as long as it is waited for."""

        def receive(self, until: float | None = None) -> bytes:
            assert until is not None
            now[0] += PATIENCE / 4
            if now[0] > until:
                raise Refusal(errors.TOO_SLOW, "too little came")
            return b"0"

    body = Body(Drip(), None)  # type: ignore[arg-type]  # all that it asks of a connection
    body.buffer = begin
    with pytest.raises(Refusal) as caught:
        body.read()
    assert caught.value.kind is errors.TOO_SLOW
    assert now[0] <= 2 * PATIENCE


def test_a_moment_that_is_given_ends_the_wait() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Refusal) as caught:
        Connection(theirs, b"").receive(time.monotonic() - 1)
    assert caught.value.kind is errors.TOO_SLOW
