"""Server-Sent Events: sends every change of a task or a batch, or its output, to subscribers until it has ended.

A stream occupies no thread. One thread per process reads all watched subjects, four times a second, regardless of the
number of streams; the loop of `server.py` keeps the connections and writes to them. An event is the whole current
state, with an id derived from it; in the streams of features, such as output, it is one chunk, and its id the position.
A client that reconnects to any process with Last-Event-ID therefore gets only new events. Nothing is read for a client
that has not read its last events; the server disconnects it in the end, and it may reconnect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from firmq.gateway.http import errors
from firmq.shared.errors import StoreUnavailable
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
MOST = 400
"""Maximum streams per process; each holds a connection and some kilobytes."""
INTERVAL = 0.25
MIN_PAUSE = 0.02
UNREAD_BYTES = 16 << 20
"""Maximum bytes of events that wait for clients, all streams together."""
WHILE_AWAY = 1.0
"""Seconds between polls while Redis does not answer."""
HEARTBEAT = 15.0
"""Seconds without an event after which a comment keeps the stream alive."""
_COMMENT = b": still here\n\n"
_BEGIN = b"retry: 2000\n\n"

Subject = tuple[str, str]
"""A watched object: its kind and its id."""


Watch = tuple[Subject, str | None]
"""A subject, and the last event of a client."""


class NewEvents(NamedTuple):
    """The events that are new to a client, the id of the last one then, and whether others follow: none, or at once."""

    events: bytes
    last_event_id: str | None
    ended: bool = False
    more: bool = False


class Observation(Protocol):
    """The observed state of a subject."""

    def after(self, last_event_id: str | None) -> NewEvents:
        """Returns the events after a client's last one."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a subject as an event; the last one when it has ended."""

    data: bytes
    ended: bool

    @property
    def id(self) -> str:
        return blake2b(self.data, digest_size=8).hexdigest()

    def after(self, last_event_id: str | None) -> NewEvents:
        return NewEvents(b"" if self.id == last_event_id else self.event(), self.id, self.ended)

    def event(self) -> bytes:
        name = b"end" if self.ended else b"state"
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, self.id.encode(), self.data)


class Sink(Protocol):
    """The receiver of a stream's events."""

    @property
    def unread(self) -> int:
        """Returns the bytes of events that the client has not read."""
        ...

    def send(self, data: bytes) -> bool:
        """Sends data. Returns whether the client is still connected."""
        ...

    def disconnect(self) -> None:
        """Disconnects the client."""
        ...

    def end(self) -> None:
        """Ends the stream."""
        ...


class Waiting:
    """A sink for servers that read a response from an iterator, which occupies one of their threads."""

    unread = 0

    def __init__(self) -> None:
        self.parts: SimpleQueue[bytes | None] = SimpleQueue()

    def send(self, data: bytes) -> bool:
        self.parts.put(data)
        return True

    def end(self) -> None:
        self.parts.put(None)

    disconnect = end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts.get, None)


class Stream:
    """A subscription of a client to one subject."""

    def __init__(self, broadcaster: Broadcaster, subject: Subject, last_event_id: str | None, client: str = "") -> None:
        self.broadcaster = broadcaster
        self.subject = subject
        self.client = client
        self.last_event_id = last_event_id
        """The id of the last event that the client has."""
        self.sink: Sink | None = None
        self.spoke_at = time.monotonic()

    @property
    def unread(self) -> int:
        return self.sink.unread if self.sink else 0

    def begin(self, sink: Sink) -> None:
        """Sends events to `sink` from now on; ends it when the process stops, as the streams may be ended already."""
        self.sink, self.spoke_at = sink, time.monotonic()
        if self.broadcaster.stopping.is_set():
            self.finish()

    def close(self) -> None:
        """Ends the subscription after the client has disconnected."""
        self.broadcaster.forget(self)

    def publish(self, observation: Observation | None, now: float) -> bool:
        """Sends its new events; None means that the subject was removed. Returns whether more follows at once."""
        if self.sink is None:
            # The headers are not written yet, or never will be because the client has disconnected.
            if now - self.spoke_at > HEARTBEAT:
                self.close()
            return False
        if observation is None:
            self._publish(b"event: gone\ndata: {}\n\n", now)
            self.finish()
            return False
        found = observation.after(self.last_event_id)
        self.last_event_id = found.last_event_id
        if found.events:
            self._publish(found.events, now)
        elif now - self.spoke_at >= HEARTBEAT:
            self._publish(_COMMENT, now)
        if found.ended:
            self.finish()
        return found.more

    def breathe(self, now: float) -> None:
        """Sends a comment when the stream has been silent for HEARTBEAT seconds."""
        if self.sink is not None and now - self.spoke_at >= HEARTBEAT:
            self._publish(_COMMENT, now)

    def finish(self) -> None:
        self.close()
        if self.sink is not None:
            self.sink.end()

    def _publish(self, data: bytes, now: float) -> None:
        self.spoke_at = now
        if self.sink is not None and not self.sink.send(data):
            self.close()
        elif self.unread:
            self.broadcaster.bound_unread()


Look = Callable[[Collection[Watch]], Iterable[tuple[Watch, Observation]]]
"""Returns the state of each subject that exists."""


class Broadcaster:
    """All streams of a process and their polling thread, which runs while there are streams."""

    def __init__(self, look: Look, stopping: threading.Event, most: int = MOST) -> None:
        self.look = look
        self.stopping = stopping
        self.most = most
        self.streams: dict[Stream, None] = {}
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def open(self, subject: Subject, last_event_id: str | None, client: str = "") -> tuple[Stream | None, bytes]:
        """Returns a stream and its first bytes; None instead of the stream when the subject has ended.

        Raises KeyError when the subject does not exist, and Refusal when the maximum number of streams is open, or the
        client of an API key already holds as many as are free.
        """
        watch = (subject, last_event_id)
        found = dict(self.look([watch]))[watch].after(last_event_id)
        if found.ended:
            return None, _BEGIN + found.events if found.events else b""
        stream = Stream(self, subject, found.last_event_id, client)
        with self.lock:
            left, own = self.most - len(self.streams), sum(each.client == client for each in self.streams)
            if left <= 0 or (client and own >= left):
                headers = {"Retry-After": str(refusals.RETRY_AFTER)}
                detail = f"{self.most} event streams are open, the maximum: try again later"
                if left > 0:
                    detail = (
                        f"{client} has {own} event streams, and {left} are left for all: end some, or try again later"
                    )
                raise Refusal(errors.BUSY, detail, headers=headers)
            self.streams[stream] = None
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="announcer", daemon=True)
                self.thread.start()
        return stream, _BEGIN + found.events

    def forget(self, stream: Stream) -> None:
        with self.lock:
            self.streams.pop(stream, None)

    def _run(self) -> None:
        while streams := self._watching():
            next_round = time.monotonic() + INTERVAL
            try:
                behind = self.round(streams)
                while behind and time.monotonic() < next_round:
                    behind = self.round(behind)
                pause = max(MIN_PAUSE, next_round - time.monotonic())
            except StoreUnavailable:
                pause = WHILE_AWAY
                for stream in streams:
                    stream.breathe(time.monotonic())
            except Exception:
                log.exception("serving event streams failed")
                pause = WHILE_AWAY
            self.stopping.wait(pause)

    def _watching(self) -> list[Stream]:
        with self.lock:
            streams = list(self.streams)
            if not streams:
                self.thread = None
        return streams

    def round(self, streams: Collection[Stream]) -> list[Stream]:
        """Sends new events to all streams that are read. Returns the streams that are sent more at once."""
        if self.stopping.is_set():
            for stream in streams:
                stream.finish()  # the client reconnects to another process
            return []
        watched: dict[Watch, list[Stream]] = {}
        for stream in streams:
            if not stream.unread:
                watched.setdefault((stream.subject, stream.last_event_id), []).append(stream)
        behind, now = list[Stream](), time.monotonic()
        for watch, observation in self.look(list(watched)):
            behind += [each for each in watched.pop(watch) if each.publish(observation, now)]
        for stream in chain.from_iterable(watched.values()):
            stream.publish(None, now)
        return behind

    def bound_unread(self) -> None:
        """Disconnects clients while all together have too much to read: those with most first."""
        unread = {stream: stream.unread for stream in list(self.streams)}
        excess = sum(unread.values()) - UNREAD_BYTES
        for stream in sorted(unread, key=unread.__getitem__, reverse=True):
            if excess <= 0:
                return
            excess -= unread[stream]
            if stream.sink is not None:
                stream.sink.disconnect()
