"""The dashboard of a system with several partitions: an app for each, and the choice between them.

A page about a task, a batch or a bulk action is served by the partition that has it; every other page by the one that
the browser has shown last, in a cookie. Sessions are in the first partition.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, TypeVar

from firmq.dashboard.app import create_app
from firmq.dashboard.context import SHOWN
from firmq.dashboard.features.partitions.choice import NUMBER, OF_NONE, READINESS, id_in, read_choice
from firmq.dashboard.features.partitions.pages import blueprint
from firmq.dashboard.overview import Snapshot
from firmq.shared.config.redis_address import without_password
from firmq.shared.config.stores import Place, Stores
from firmq.shared.errors import StoreUnavailable
from firmq.shared.features.partitions.lookup import locate
from firmq.shared.redis.client import connect_for, keys_of, translated

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from flask import Flask
    from redis import Redis

    from firmq.dashboard.auth.users import Users
    from firmq.dashboard.context import PageContext
    from firmq.shared.config.settings import Settings

T = TypeVar("T")
COOKIE = "firmq_partition"
_CHOICE = re.compile(r"/partitions/([^/]+)")
PATIENCE, PROBE_PATIENCE = 3.0, 1.0
"""Seconds for the answer of a partition, and of all partitions to a probe, which waits for three."""
THREADS = 4
"""Concurrent requests to a partition, so that an unreachable one keeps no thread from the others."""
Environ = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition, as the overview of all of them shows it; without a snapshot when it does not answer."""

    place: Place
    url: str
    now: Snapshot | None
    trouble: str = ""
    is_draining: bool = False

    @property
    def number(self) -> int:
        return self.place.number


class Partitions:
    """The apps of all partitions."""

    def __init__(self, stores: Stores, apps: Mapping[int, Flask], clients: Mapping[int, Redis]) -> None:
        self.stores = stores
        self.apps = apps
        self.clients = clients
        self._pools = {number: ThreadPoolExecutor(THREADS, f"partition-{number}") for number in apps}
        self._late: dict[int, Future[Any]] = {}

    @property
    def numbers(self) -> list[int]:
        return list(self.apps)

    def context(self, number: int) -> PageContext:
        """Returns the stores for the pages of a partition."""
        found: PageContext = self.apps[number].extensions["page_context"]
        return found

    def look(self) -> list[PartitionState]:
        """Returns the state of every partition."""
        found, away = self.ask(self._read)
        return [
            PartitionState(
                place=Place(stores=self.stores, number=number),
                url=without_password(self.context(number).settings.store_url),
                now=found[number][0] if number in found else None,
                is_draining=number in found and found[number][1],
                trouble=str(away.get(number, "")),
            )
            for number in self.apps
        ]

    def ask(
        self, read: Callable[[int], T], patience: float = PATIENCE
    ) -> tuple[dict[int, T], dict[int, StoreUnavailable]]:
        """Returns the result of `read` for each partition, called concurrently, and the errors of the others.

        One that was too slow is not queried again until it has answered.
        """
        asked, until = dict[int, Future[T]](), time.monotonic() + patience
        found, away = dict[int, T](), dict[int, StoreUnavailable]()
        late = StoreUnavailable(f"no answer within {patience:.0f} s")
        for number, pool in self._pools.items():
            if (slow := self._late.get(number)) and not slow.done():
                away[number] = late
            else:
                asked[number] = pool.submit(copy_context().run, read, number)
        for number, answer in asked.items():
            try:
                found[number] = answer.result(max(0, until - time.monotonic()))
            except StoreUnavailable as error:
                away[number] = error
            except TimeoutError:
                away[number] = late
                if not answer.cancel():  # it waits for Redis, not for a thread
                    self._late[number] = answer
        return found, away

    def answering(self, patience: float = PATIENCE) -> list[int]:
        """Returns the partitions that answer."""

        def ping(number: int) -> None:
            with translated():
                self.clients[number].ping()

        return list(self.ask(ping, patience)[0])

    def _read(self, number: int) -> tuple[Snapshot, bool]:
        now, client = self.context(number).queries.snapshot(), self.clients[number]
        with translated():
            return now, bool(client.exists(keys_of(client).DRAINING))


class PartitionedDashboard:
    """The WSGI app that passes each request to the app of one partition."""

    def __init__(self, settings: Settings, users: Users) -> None:
        self.clients = {number: connect_for(own, "dashboard") for number, own in settings.stores.items()}
        apps: dict[int, Flask] = {}
        first: PageContext | None = None
        for number, own in settings.stores.items():
            apps[number] = app = create_app(own, self.clients[number], users, first=first)
            first = first or app.extensions["page_context"]
        self.partitions = Partitions(settings.stores, apps, self.clients)
        for app in apps.values():
            app.extensions["partitions"] = self.partitions
            app.register_blueprint(blueprint)
            shared: dict[str, Any] = app.jinja_env.globals
            shared["partition_numbers"] = self.partitions.numbers
            shared["more_pages"]["/"].append(("/partitions", "Partitions"))
            shared["slots"]["tools"].append("partitions/choice.html")
            shared["slots"]["error.links"].append("partitions/link.html")
        self.config = next(iter(apps.values())).config

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        said, path, apps = _cookie(environ), environ.get("PATH_INFO", "/"), self.partitions.apps
        if OF_NONE.fullmatch(path):
            return self._ready(path)(environ, start_response)
        number = locate(found, self.clients) if (found := id_in(path)) else None
        if number is None and (chosen := _CHOICE.fullmatch(path)):
            number = read_choice(chosen[1], apps)
        if number is None:
            number = read_choice(said, apps)
        if number is None:
            number = next(iter(self.partitions.answering()), next(iter(apps)))
        environ[NUMBER], environ[SHOWN] = number, f"Partition {number}"
        # The cookie gets the shown partition, so that a form of this page changes it there.
        start = start_response if said == str(number) else _noting(start_response, str(number))
        return apps[number](environ, start)

    def _ready(self, path: str) -> Flask:
        """Returns the app that answers a probe: for readiness, a reachable partition's."""
        numbers = self.partitions.answering(PROBE_PATIENCE) if path == READINESS else []
        return self.partitions.apps[next(iter(numbers), next(iter(self.partitions.apps)))]


def _cookie(environ: Environ) -> str:
    try:
        said = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    except CookieError:
        return ""
    return said.value if said is not None else ""


def _noting(start_response: StartResponse, choice: str) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
        cookie = ("Set-Cookie", f"{COOKIE}={choice}; Path=/; SameSite=Lax; HttpOnly")
        return start_response(status, [*headers, cookie], *more)

    return start
