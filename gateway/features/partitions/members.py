"""A partition in the router: its app, its reachability, and the number of its tasks."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import g, request
from redis.exceptions import RedisError

from firmq.gateway.http.across import CALLER, Across, Answer, Environ
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import connect, keys_of
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from flask import Flask
    from redis import Redis

    from firmq.shared.config.settings import Settings

log = logging.getLogger(__name__)

LOOK_EVERY = 0.25
"""Seconds between two looks at a partition."""
PATIENCE = 0.4
"""Seconds for the answer to a look; a partition that is slower gets nothing new."""


class Member:
    """One partition: its app, and the last known state of its Redis."""

    def __init__(self, number: int, app: Flask, settings: Settings) -> None:
        self.number = number
        self.app = app
        self.redis: Redis = connect(settings.store_url, timeout=PATIENCE, retries=0, name="router")
        self.keys = keys_of(self.redis)
        self.stored = 0
        """Number of tasks that it stores, as of the last look."""
        self.answers = True
        self.is_draining = False

    @property
    def takes_new(self) -> bool:
        """Returns whether it takes new tasks that nothing ties to a partition."""
        return self.answers and not self.is_draining

    def look(self) -> None:
        """Checks whether it answers, how much it stores, and whether it is draining."""
        try:
            with self.redis.pipeline(transaction=False) as pipeline:
                pipeline.zcard(self.keys.TASKS)
                pipeline.exists(self.keys.DRAINING)
                stored, draining = pipeline.execute()
            self.stored, self.is_draining, answered = int(stored), bool(draining), True
        except (RedisError, OSError) as error:
            answered = False
            if self.answers:
                log.error("partition %d does not answer: %s; nothing new is placed there", self.number, error)
        if answered and not self.answers:
            log.info("partition %d answers again", self.number)
        self.answers = answered

    def admitted(self, environ: Environ) -> tuple[Across | str, Mapping[str, str]]:
        """Returns which partitions answer a request, and the variables of its path.

        Requests without access, and unknown paths, go to the first one, whose app rejects them.
        """
        with self.app.request_context(environ):
            view: Any = self.app.view_functions[request.endpoint] if request.endpoint else None
            if view is None or view.about.across is Across.FIRST:
                return Across.FIRST, {}
            try:
                self.app.preprocess_request()
                view.check_access()
            except (Refusal, StoreUnavailable) as error:
                environ[CALLER] = error
                return Across.FIRST, {}
            environ[CALLER] = g.get("api_key")
            return view.about.across, request.view_args or {}

    def call(self, environ: Environ, body: bytes = b"", about: Environ | None = None) -> Answer:
        """Returns the app's response to a request; `about` are further keys of its environment."""
        given = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), **(about or {})}
        found: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
            found.update(status=int(status[:3]), headers=headers)
            return lambda data: None

        chunks: Iterable[bytes] = self.app(given, start)
        try:
            return Answer(self.number, body=b"".join(chunks), **found)
        finally:
            with suppress(AttributeError):
                chunks.close()  # type: ignore[attr-defined]  # of responses that have to be closed


class Members:
    """The partitions of a system, and the thread that monitors them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.all: Mapping[int, Member] = {each.number: each for each in members}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def first(self) -> Member:
        """Returns the first one that answers, else the first."""
        return next((each for each in self.all.values() if each.answers), next(iter(self.all.values())))

    def answering(self) -> list[Member]:
        """Returns those that answer."""
        return [each for each in self.all.values() if each.answers]

    def away(self) -> list[int]:
        """Returns the numbers of those that do not answer."""
        return [each.number for each in self.all.values() if not each.answers]

    def watch(self) -> None:
        """Looks after them from now on, in a thread for each; the first request of a process calls this."""
        with self._lock:
            if self._thread is None:
                for each in self.all.values():
                    each.look()
                    self._thread = threading.Thread(target=self._watch, args=(each,), name="partition", daemon=True)
                    self._thread.start()

    def _watch(self, member: Member) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            member.look()
