"""Server-Sent Events: whoever watches a task or a batch is told of every change, until it has ended.

A stream holds no thread. One thread of a process looks at everything that is watched, four times a second and in one
round trip, however many watch it; the loop of `server.py` keeps the connections and writes to them. An event is the
whole present state, and its id follows from that, so whoever comes back with Last-Event-ID, to whichever process, is
told what is new to him and nothing else. Who reads too slowly for that is cut off, and may come back.
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

from gateway.http import errors
from gateway.http.errors import Refusal
from shared.errors import StoreUnavailable

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
MOST = 400
"""Streams of a process at a time; each holds a connection and some kilobytes."""
INTERVAL = 0.25
WHILE_AWAY = 1.0
"""Between looks while Redis does not answer."""
HEARTBEAT = 15.0
"""Seconds without news after which a line says that the stream is alive."""
_COMMENT = b": still here\n\n"
_BEGIN = b"retry: 2000\n\n"

Subject = tuple[str, str]
"""What is watched: its kind and its id."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is seen of a subject: an event, the last one when it has ended."""

    data: bytes
    ended: bool

    @property
    def id(self) -> str:
        return blake2b(self.data, digest_size=8).hexdigest()

    def event(self) -> bytes:
        name = b"end" if self.ended else b"state"
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, self.id.encode(), self.data)


class Sink(Protocol):
    """Where the events of a stream go."""

    def send(self, data: bytes) -> bool:
        """Whether somebody is still there."""
        ...

    def end(self) -> None:
        """All was said."""
        ...


class Waiting:
    """A sink for servers that take an answer from an iterator, which keeps one of their threads."""

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
    """Somebody who watches something."""

    def __init__(self, broadcaster: Broadcaster, subject: Subject, last_event_id: str | None) -> None:
        self.broadcaster = broadcaster
        self.subject = subject
        self.last_event_id = last_event_id
        """The id of the last event that he has."""
        self.sink: Sink | None = None
        self.spoke_at = time.monotonic()

    def begin(self, sink: Sink) -> None:
        """From here on events go there."""
        self.sink, self.spoke_at = sink, time.monotonic()

    def close(self) -> None:
        """Nobody is there any more."""
        self.broadcaster.forget(self)

    def publish(self, snapshot: Snapshot | None, now: float) -> None:
        """Says what is new; None is what was removed."""
        if self.sink is None:
            # Its headers are not written yet; or never will be, as whoever asked has gone.
            if now - self.spoke_at > HEARTBEAT:
                self.close()
            return
        if snapshot is None:
            self._publish(b"event: gone\ndata: {}\n\n", now)
            self.finish()
        elif snapshot.id != self.last_event_id:
            self.last_event_id = snapshot.id
            self._publish(snapshot.event(), now)
        elif now - self.spoke_at >= HEARTBEAT:
            self._publish(_COMMENT, now)
        if snapshot is not None and snapshot.ended:
            self.finish()

    def breathe(self, now: float) -> None:
        """Says that it is alive, when it has been silent for long."""
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


Look = Callable[[Collection[Subject]], Mapping[Subject, Snapshot]]


class Broadcaster:
    """All streams of a process, and the thread that looks for them; it lives while there is one."""

    def __init__(self, look: Look, stopping: threading.Event, most: int = MOST) -> None:
        self.look = look
        self.stopping = stopping
        self.most = most
        self.streams: dict[Stream, None] = {}
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def open(self, subject: Subject, last_event_id: str | None) -> tuple[Stream | None, bytes]:
        """A stream, and the bytes that it begins with; without a stream when there is nothing more to come.

        Raises KeyError when there is no such subject, and Refusal when as many watch as may.
        """
        snapshot = self.look([subject])[subject]
        first = _BEGIN + (snapshot.event() if snapshot.id != last_event_id else b"")
        if snapshot.ended:
            return None, first if snapshot.id != last_event_id else b""
        stream = Stream(self, subject, snapshot.id)
        with self.lock:
            if len(self.streams) >= self.most:
                headers = {"Retry-After": str(errors.RETRY_AFTER)}
                raise Refusal(errors.BUSY, f"{self.most} streams of events are open here", headers=headers)
            self.streams[stream] = None
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="announcer", daemon=True)
                self.thread.start()
        return stream, first

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
                log.exception("the streams of events could not be served")
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
                stream.finish()  # whoever watched comes back, to another process
            return
        sights = self.look({stream.subject for stream in streams})
        now = time.monotonic()
        for stream in streams:
            stream.publish(sights.get(stream.subject), now)
