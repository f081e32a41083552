"""Watching: the states of a task or a batch as a gateway tells of them, over cut connections too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import TypeVar

from shared.client.answers import read
from shared.client.problems import Problem
from shared.client.transport import LOST, Patience, Transport, may_pass, opened, read_document

T = TypeVar("T")
SILENCE = 45.0
"""Seconds without a word after which a stream counts as cut; a gateway gives a sign of life every fifteen."""
_LONGEST = 1 << 20
_ALIVE = "alive"
"""What a sign of life counts as. Headers are none: whatever answers has them, a gateway or not."""
_EVENTS = "text/event-stream"


@dataclass(slots=True)
class _Event:
    name: str = "message"
    id: str | None = None
    data: str = ""


def watch(transport: Transport, path: str, kind: type[T]) -> Iterator[T]:
    """Each state that is told, the last when it has ended; ends early when what was watched is removed.

    Raises NotFound, Unreachable when nobody answers for as long as the client has patience, or NoGateway.
    """
    told: str | None = None
    patience = transport.patience(lasting=True)
    while True:
        lost: Exception = ConnectionResetError("the stream of events was cut off")
        try:
            for event in _stream(transport, path, told):
                patience.renew()
                if event.name == _ALIVE:
                    continue
                if event.name == "gone":
                    return
                told = event.id
                yield read(kind, read_document(event.data))
                if event.name == "end":
                    return
        except (Problem, *LOST) as error:
            lost = error
        _go_on(transport, patience, lost)


def _go_on(transport: Transport, patience: Patience, lost: Exception) -> None:
    """Waits before the stream is asked for again; raises what ended it when that is no use."""
    if isinstance(lost, Problem):
        if not may_pass(lost) or not patience.pause(lost.document.get("retry_after")):
            raise lost
    elif not patience.pause():
        raise transport.unreachable(lost) from lost


def _stream(transport: Transport, path: str, told: str | None) -> Iterator[_Event]:
    """The events of one connection. Raises Problem when it is refused."""
    headers = {**transport.headers, "Accept": f"{_EVENTS}, application/problem+json"}
    if told is not None:
        headers["Last-Event-ID"] = told
    connection = transport.connect(SILENCE)
    try:
        connection.request("GET", transport.target(path), headers=headers)
        with opened(connection.getresponse(), _EVENTS) as response:
            if response.status == 204:
                yield _Event(name="gone")  # what was told last was the end
            yield from _events(response)
    finally:
        connection.close()


def _events(response: HTTPResponse) -> Iterator[_Event]:
    """The events of an answer; one that is cut off is none."""
    event = _Event()
    while line := response.readline(_LONGEST):
        text = line.decode(errors="replace").rstrip("\r\n")
        if not text:
            if event.data:
                yield event
            event = _Event()
            continue
        if text.startswith((":", "retry:")):
            yield _Event(name=_ALIVE)
        name, _, value = text.partition(": ")
        if name == "event":
            event.name = value
        elif name == "id":
            event.id = value
        elif name == "data":
            event.data += value
