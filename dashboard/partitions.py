"""The dashboard of a system with several partitions: an app for each, and the choice between them.

A page about a task, a batch or a bulk action is served by the partition that its id names; every other page by the one
that the browser has chosen last, in a cookie. Sign-in and personal keys are in the first partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from taskqueue.dashboard.app import create_app
from taskqueue.dashboard.partition_pages import OF_ID, blueprint
from taskqueue.shared.config.redis_address import without_password
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.redis.client import connect_for, keys_of, translated
from taskqueue.shared.redis.partition_lookup import locate
from taskqueue.shared.redis.schema_version import is_draining

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from flask import Flask
    from redis import Redis

    from taskqueue.dashboard.auth.users import Users
    from taskqueue.dashboard.context import PageContext
    from taskqueue.dashboard.overview import Snapshot
    from taskqueue.shared.config.settings import Settings

COOKIE = "taskqueue_partition"
_CHOICE = re.compile(r"/partitions/(\d{1,4})")
Environ = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition, as the overview of all of them shows it; without a snapshot when it does not answer."""

    number: int
    url: str
    now: Snapshot | None
    trouble: str = ""
    is_draining: bool = False


class Partitions:
    """The apps of all partitions."""

    def __init__(self, apps: Mapping[int, Flask], clients: Mapping[int, Redis]) -> None:
        self.apps = apps
        self.clients = clients

    @property
    def numbers(self) -> list[int]:
        return list(self.apps)

    def context(self, number: int) -> PageContext:
        """Returns what the pages of a partition read from."""
        found: PageContext = self.apps[number].extensions["page_context"]
        return found

    def look(self) -> list[PartitionState]:
        """Returns the state of every partition."""
        return [self._state(number) for number in self.apps]

    def _state(self, number: int) -> PartitionState:
        own = self.context(number)
        url = without_password(own.settings.store_url)
        try:
            now = own.queries.snapshot()
            with translated():
                drains = is_draining(self.clients[number].get(keys_of(self.clients[number]).FORMAT))
            return PartitionState(number=number, url=url, now=now, is_draining=drains)
        except StoreUnavailable as error:
            return PartitionState(number=number, url=url, now=None, trouble=str(error))


class PartitionedDashboard:
    """The WSGI app that passes each request to the app of one partition."""

    def __init__(self, settings: Settings, users: Users) -> None:
        self.clients = {number: connect_for(own, "dashboard") for number, own in settings.partitions.items()}
        apps: dict[int, Flask] = {}
        first: PageContext | None = None
        for number, own in settings.partitions.items():
            apps[number] = app = create_app(own, self.clients[number], users, first=first)
            first = first or app.extensions["page_context"]
        self.partitions = Partitions(apps, self.clients)
        for number, app in apps.items():
            app.extensions["partitions"] = self.partitions
            app.extensions["partition"] = number
            app.register_blueprint(blueprint)
        self.config = next(iter(apps.values())).config

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        chosen, number = _cookie(environ), None
        path = environ.get("PATH_INFO", "/")
        if of_id := OF_ID.fullmatch(path):
            number = locate(of_id[1], self.clients)
        elif (choice := _CHOICE.fullmatch(path)) and int(choice[1]) in self.partitions.apps:
            number = int(choice[1])
        if number is None and chosen in self.partitions.apps:
            number = chosen
        found = self._first() if number is None else number
        noted = start_response if found == chosen else _noting(start_response, found)
        return self.partitions.apps[found](environ, noted)

    def _first(self) -> int:
        """Returns the first partition that answers."""
        states = self.partitions.look()
        return next((each.number for each in states if each.now), states[0].number)


def _cookie(environ: Environ) -> int | None:
    try:
        said = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    except CookieError:
        return None
    return int(said.value) if said is not None and said.value.isdecimal() and len(said.value) < 5 else None


def _noting(start_response: StartResponse, number: int) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
        cookie = ("Set-Cookie", f"{COOKIE}={number}; Path=/; SameSite=Lax; HttpOnly")
        return start_response(status, [*headers, cookie], *more)

    return start
