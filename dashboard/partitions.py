"""The dashboard of a system with several partitions: an app for each, one for all, and the choice between them.

A page about a task or a batch is served by the partition that its id names; every other page by what the browser has
chosen last, in a cookie: one partition, or all. Pages that are about one partition by nature then show one of them.
Sign-in and personal keys are in the first partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from firmq.dashboard.app import create_app
from firmq.dashboard.merged_queries import MergedQueries
from firmq.dashboard.overview import Snapshot
from firmq.dashboard.partition_choice import (
    OF_ALL,
    OF_BULK,
    OF_ID,
    OF_NONE,
    READINESS,
    SHOWN,
    Choice,
    Shown,
    read_choice,
)
from firmq.dashboard.partition_pages import blueprint, overview
from firmq.shared.config.redis_address import without_password
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import connect_for, keys_of, translated
from firmq.shared.redis.partition_lookup import locate
from firmq.shared.redis.schema_version import is_draining

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from flask import Flask
    from redis import Redis

    from firmq.dashboard.auth.users import Users
    from firmq.dashboard.context import PageContext
    from firmq.shared.config.settings import Settings

COOKIE = "firmq_partition"
_CHOICE = re.compile(r"/partitions/([^/]+)")
PROBE_PATIENCE = 1.0
"""Seconds for the answers of all partitions to a probe, which waits for three."""
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

    def __init__(self, apps: Mapping[int, Flask], clients: Mapping[int, Redis], queries: MergedQueries) -> None:
        self.apps = apps
        self.clients = clients
        self.queries = queries

    @property
    def numbers(self) -> list[int]:
        return list(self.apps)

    def context(self, number: int) -> PageContext:
        """Returns what the pages of a partition read from."""
        found: PageContext = self.apps[number].extensions["page_context"]
        return found

    def look(self) -> list[PartitionState]:
        """Returns the state of every partition."""
        found, away = self.queries.ask(self._read)
        return [
            PartitionState(
                number=number,
                url=without_password(self.context(number).settings.store_url),
                now=found[number][0] if number in found else None,
                is_draining=number in found and found[number][1],
                trouble=str(away.get(number, "")),
            )
            for number in self.apps
        ]

    def dead_letters(self, choice: Choice) -> int:
        """Returns how many dead letters the chosen partitions have, as far as they answer."""
        numbers = self.numbers if choice.all or choice.number is None else [choice.number]
        found, _ = self.queries.ask(lambda number: self.context(number).queries.snapshot(), numbers)
        return sum(each.counts[TaskState.FAILED] for each in found.values())

    def _read(self, number: int) -> tuple[Snapshot, bool]:
        now, client = self.context(number).queries.snapshot(), self.clients[number]
        with translated():
            return now, is_draining(client.get(keys_of(client).FORMAT))


class PartitionedDashboard:
    """The WSGI app that passes each request to the app of one partition."""

    def __init__(self, settings: Settings, users: Users) -> None:
        self.clients = {number: connect_for(own, "dashboard") for number, own in settings.partitions.items()}
        apps: dict[int, Flask] = {}
        first: PageContext | None = None
        for number, own in settings.partitions.items():
            apps[number] = app = create_app(own, self.clients[number], users, first=first)
            first = first or app.extensions["page_context"]
        parts = {number: app.extensions["page_context"].queries for number, app in apps.items()}
        [(number, own), *_] = settings.partitions.items()
        self.all = create_app(own, self.clients[number], users, first=first, queries=partial(MergedQueries, parts))
        self.partitions = Partitions(apps, self.clients, self.all.extensions["page_context"].queries)
        for app in (*apps.values(), self.all):
            app.extensions["partitions"] = self.partitions
            app.register_blueprint(blueprint)
        self.all.view_functions["overview.overview"] = overview
        self.config = self.all.config

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        said, path = _cookie(environ), environ.get("PATH_INFO", "/")
        if OF_NONE.fullmatch(path):
            return self._ready(path)(environ, start_response)
        choice = read_choice(said, self.partitions.apps) or Choice()
        if (chosen := _CHOICE.fullmatch(path)) and (new := read_choice(chosen[1], self.partitions.apps)):
            choice = new
        number = locate(of_id[1], self.clients) if (of_id := OF_ID.fullmatch(path)) else None
        shown = Shown(choice, number, by_id=True)
        if number is None and (OF_BULK.fullmatch(path) or (choice.all and OF_ALL.fullmatch(path))):
            shown = Shown(choice)
        elif number is None or not choice.all:
            # The cookie gets what is shown, so that a form of this page changes it there.
            one = next((each for each in (number, choice.number) if each is not None), None)
            one = self._first() if one is None else one
            shown = Shown(Choice(choice.all, one), one)
        environ[SHOWN] = shown
        noted = str(shown.choice)
        start = start_response if noted == (said or "all") else _noting(start_response, noted)
        app = self.all if shown.number is None else self.partitions.apps[shown.number]
        return app(environ, start)

    def _ready(self, path: str) -> Flask:
        """Returns the app that answers a probe: that of a partition which answers, where readiness is asked for."""
        if path != READINESS:
            return self.all

        def ping(number: int) -> None:
            with translated():
                self.clients[number].ping()

        found, _ = self.partitions.queries.ask(ping, patience=PROBE_PATIENCE)
        return self.partitions.apps[next(iter(found), next(iter(self.clients)))]

    def _first(self) -> int:
        """Returns the first partition that answers."""
        states = self.partitions.look()
        return next((each.number for each in states if each.now), states[0].number)


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
