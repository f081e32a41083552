"""Places for streams in a process of the gateway: how many there are, and who has to leave one."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from werkzeug.test import EnvironBuilder

from gateway import errors, streams
from gateway.errors import Refusal
from gateway.ndjson import PATIENCE, Lines
from gateway.streams import Streams
from tests.harness import wait_until
from tests.integration.gateway.driving import Gateway

Open = Callable[[], "Caller"]


class Caller:
    """Somebody who sends a stream, in chunks."""

    def __init__(self, place: Streams) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        about = EnvironBuilder(path="/tasks/batch", method="POST", content_type="application/x-ndjson")
        place.take(theirs, b"", None, about.get_environ(), False)

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
