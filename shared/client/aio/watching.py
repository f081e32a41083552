"""Watches a task or a batch over Server-Sent Events and reconnects after lost connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from firmq.shared.client.aio.transport import Patience, Transport
from firmq.shared.client.answers import read
from firmq.shared.client.response import may_pass, read_document, retry_after, unreachable
from firmq.shared.submission.answers import OutputChunk
from firmq.shared.submission.problems import NoGateway, Problem, problem

if TYPE_CHECKING:
    from firmq.shared.client.aio.connections import HTTPResponse

T = TypeVar("T")
SILENCE = 45.0
"""Seconds without data after which a stream counts as lost; a gateway sends a comment every 15."""
_LONGEST = 1 << 20
_ALIVE = "alive"
"""Event name for keep-alive comments. Headers do not count, because any server sends them."""
_EVENTS = "text/event-stream"


@dataclass(slots=True)
class _Event:
    name: str = "message"
    id: str | None = None
    data: str = ""


async def watch(transport: Transport, path: str, kind: type[T]) -> AsyncGenerator[T]:
    """Yields each state, the last one when the subject has ended; ends early when the subject is removed.

    Raises NotFound, NoGateway, or Unreachable when no gateway answers for the client's patience.
    """
    async with aclosing(_followed(transport, path)) as events:
        async for event in events:
            yield read(kind, read_document(event.data))


async def output(transport: Transport, path: str) -> AsyncGenerator[OutputChunk]:
    """Yields each chunk of the output of a task until that has ended. Raises as `watch`."""
    async with aclosing(_followed(transport, path)) as events:
        async for event in events:
            if event.name != "end":
                yield read(OutputChunk, read_document(event.data))


async def _followed(transport: Transport, path: str) -> AsyncGenerator[_Event]:
    """Yields the events of a path up to its end, over as many connections as that takes."""
    last_event_id: str | None = None
    patience = transport.patience(lasting=True)
    while True:
        lost: Exception = ConnectionResetError("the stream of events was cut off")
        alive = False
        try:
            async with aclosing(_stream(transport, path, last_event_id)) as events:
                async for event in events:
                    alive = True
                    if event.name == _ALIVE:
                        continue
                    if event.name == "gone":
                        return
                    last_event_id = event.id
                    yield event
                    if event.name == "end":
                        return
        except (Problem, *transport.connections.LOST) as error:
            lost = error
        if alive:  # not at each event, as silence may last longer than patience
            patience.renew()
        await _go_on(transport, patience, lost)


async def _go_on(transport: Transport, patience: Patience, lost: Exception) -> None:
    """Waits before the stream is requested again. Raises its error when a retry is useless or patience is used up."""
    if isinstance(lost, Problem):
        if not may_pass(lost) or not await patience.pause(retry_after(lost.document.get("retry_after"))):
            raise lost
    elif not await patience.pause():
        raise unreachable(transport.url, lost) from lost


async def _stream(transport: Transport, path: str, last_event_id: str | None) -> AsyncGenerator[_Event]:
    """Yields the events of one connection. Raises Problem when it is refused, NoGateway for another media type."""
    headers = {**transport.headers, "Accept": f"{_EVENTS}, application/problem+json"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    async with transport.connections.stream(transport.target(path), headers, SILENCE) as response:
        if not 200 <= response.status < 300:
            refusal = problem(response.status, await response.read(), response.headers.get("Location"))
            refusal.document.setdefault("retry_after", response.headers.get("Retry-After"))
            raise refusal
        media_type = response.headers.get_content_type()
        if response.status == 204:
            yield _Event(name="gone")  # the last event received was the end
        elif media_type != _EVENTS:
            raise NoGateway(f"HTTP {response.status} with {media_type}, not {_EVENTS}")
        async for event in _events(response):
            yield event


async def _events(response: HTTPResponse) -> AsyncIterator[_Event]:
    """Yields the events of a response; ignores an incomplete one."""
    event = _Event()
    while line := await response.readline(_LONGEST):
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
