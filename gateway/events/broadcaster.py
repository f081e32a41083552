"""Server-Sent Events: sends every change of a task or a batch, or its output, to subscribers until it has ended.

A stream occupies no thread. One thread per process reads all watched subjects, four times a second and in one round
trip, regardless of the number of streams; the loop of `server.py` keeps the connections and writes to them. An event is
the whole current state, and its id is derived from that; or it is a chunk of output, and its id is its place. A client
that reconnects to any process with Last-Event-ID therefore gets only events that are new to it. A client that reads too
slowly is disconnected and may reconnect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from queue import SimpleQueue
from typing import Protocol

from taskqueue.gateway.http import errors
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.submission import refusals
from taskqueue.shared.submission.refusals import Refusal

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
MOST = 400
"""Maximum streams per process; each holds a connection and some kilobytes."""
INTERVAL = 0.25
WHILE_AWAY = 1.0
"""Seconds between polls while Redis does not answer."""
HEARTBEAT = 15.0
"""Seconds without an event after which a comment keeps the stream alive."""
_COMMENT = b": still here\n\n"
_BEGIN = b"retry: 2000\n\n"

Subject = tuple[str, str]
"""A watched object: its kind and its id."""


class Observation(Protocol):
    """What was seen of a subject."""

    @property
    def ended(self) -> bool:
        """Whether nothing more follows."""
        ...

    def after(self, last_event_id: str | None) -> tuple[bytes, str | None]:
        """Returns the events that are new to a client with this last event, and the id of the last one then."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a subject as an event; the last one when it has ended."""

    data: bytes
    ended: bool

    @property
    def id(self) -> str:
        return blake2b(self.data, digest_size=8).hexdigest()

    def after(self, last_event_id: str | None) -> tuple[bytes, str | None]:
        return (b"", self.id) if self.id == last_event_id else (self.event(), self.id)

    def event(self) -> bytes:
        name = b"end" if self.ended else b"state"
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, self.id.encode(), self.data)


class Sink(Protocol):
    """The receiver of a stream's events."""

    def send(self, data: bytes) -> bool:
        """Sends data. Returns whether the client is still connected."""
        ...

    def end(self) -> None:
        """Ends the stream."""
        ...


class Waiting:
    """A sink for servers that read a response from an iterator, which occupies one of their threads."""

    def __init__(self) -> None:
        self.parts: SimpleQueue[bytes | None] = SimpleQueue()

    def send(self, data: bytes) -> bool:
        self.parts.put(data)
        return True

    def end(self) -> None:
        self.parts.put(None)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts.get, None)


class Stream:
    """A subscription to one subject."""

    def __init__(self, broadcaster: Broadcaster, subject: Subject, last_event_id: str | None) -> None:
        self.broadcaster = broadcaster
        self.subject = subject
        self.last_event_id = last_event_id
        """The id of the last event that the client has."""
        self.sink: Sink | None = None
        self.spoke_at = time.monotonic()

    def begin(self, sink: Sink) -> None:
        """Sends events to `sink` from now on; ends it when the process stops, as the streams may be ended already."""
        self.sink, self.spoke_at = sink, time.monotonic()
        if self.broadcaster.stopping.is_set():
            self.finish()

    def close(self) -> None:
        """Ends the subscription after the client has disconnected."""
        self.broadcaster.forget(self)

    def publish(self, observation: Observation | None, now: float) -> None:
        """Sends what is new of it; None means that the subject was removed."""
        if self.sink is None:
            # The headers are not written yet, or never will be because the client has disconnected.
            if now - self.spoke_at > HEARTBEAT:
                self.close()
            return
        if observation is None:
            self._publish(b"event: gone\ndata: {}\n\n", now)
            self.finish()
            return
        events, self.last_event_id = observation.after(self.last_event_id)
        if events:
            self._publish(events, now)
        elif now - self.spoke_at >= HEARTBEAT:
            self._publish(_COMMENT, now)
        if observation.ended:
            self.finish()

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


Look = Callable[[Mapping[Subject, Collection[str | None]]], Mapping[Subject, Observation]]
"""Returns what is seen of each subject that exists, for clients with these last events."""


class Broadcaster:
    """All streams of a process and their polling thread, which runs while there are streams."""

    def __init__(self, look: Look, stopping: threading.Event, most: int = MOST) -> None:
        self.look = look
        self.stopping = stopping
        self.most = most
        self.streams: dict[Stream, None] = {}
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def open(self, subject: Subject, last_event_id: str | None) -> tuple[Stream | None, bytes]:
        """Returns a stream and its first bytes; None instead of the stream when the subject has ended.

        Raises KeyError when the subject does not exist, and Refusal when the maximum number of streams is open.
        """
        observation = self.look({subject: [last_event_id]})[subject]
        events, last = observation.after(last_event_id)
        if observation.ended:
            return None, _BEGIN + events if events else b""
        stream = Stream(self, subject, last)
        with self.lock:
            if len(self.streams) >= self.most:
                headers = {"Retry-After": str(refusals.RETRY_AFTER)}
                detail = f"{self.most} event streams are open, the maximum: try again later"
                raise Refusal(errors.BUSY, detail, headers=headers)
            self.streams[stream] = None
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="announcer", daemon=True)
                self.thread.start()
        return stream, _BEGIN + events

    def forget(self, stream: Stream) -> None:
        with self.lock:
            self.streams.pop(stream, None)

    def _run(self) -> None:
        while streams := self._watching():
            pause = INTERVAL
            try:
                self._round(streams)
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

    def _round(self, streams: Collection[Stream]) -> None:
        if self.stopping.is_set():
            for stream in streams:
                stream.finish()  # the client reconnects to another process
            return
        watched: dict[Subject, list[str | None]] = {}
        for stream in streams:
            watched.setdefault(stream.subject, []).append(stream.last_event_id)
        observations = self.look(watched)
        now = time.monotonic()
        for stream in streams:
            stream.publish(observations.get(stream.subject), now)
