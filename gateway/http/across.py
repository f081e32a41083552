"""What an endpoint does in a system with several stores, and the interface of the app that a feature then serves.

Each store has an app of its own; the feature's WSGI app stands in front of them and passes requests on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

PART = "firmq.part"
"""0 or absent, or the index among the stores of a request: only the first of them logs and audits it."""
CALLER = "firmq.caller"
"""The `ApiKey` of a request that was let in and counted before its apps, or None without one; or why it is refused."""
POSITIONS = "firmq.positions"
"""A list that receives the cursor after each item of the page."""
Environ: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]
Merge: TypeAlias = Callable[[Mapping[int, Document]], Document]
"""Makes one document of the documents of several stores, by their numbers."""


class Across(Enum):
    """Which of several stores answer an endpoint, and how their answers become one.

    An endpoint of a feature may name a function of `Stores` and `Call` in place of these, as "module:function"."""

    FIRST = auto()  # the first one: the answer does not depend on the store
    ID = auto()  # the one that has the id in the path
    SCHEDULE = auto()  # the one that has the schedule in the path
    TASK = auto()  # the one in which the task is placed
    BATCH = auto()  # the one in which the batch is placed
    ALL = auto()  # all stores: the change is made in each, or in none
    STEP_DOWN = auto()  # the same, answered as the first one answers
    ONE = auto()  # those that know the object in the path; their answers are merged
    HOLDER = auto()  # the first one that knows the object in the path
    PAGES = auto()  # all, as one list of pages, by the ids
    PAGES_BY_ENTRY = auto()  # the same, by the ids of stream entries
    PAGES_BY_NAME = auto()  # the same, by the names
    BY_NAME = auto()  # all; items of the same name are merged
    KEYS = auto()  # the same for API keys, by their ids
    WORKERS = auto()  # the same for workers
    LOCKS = auto()  # all; their documents are merged, as are the next four
    WAITING = auto()
    BREAKDOWN = auto()
    TIMELINE = auto()
    CHECKS = auto()
    HEALTH = auto()  # all, reachable or not
    TEXTS = auto()  # all, one after the other


@dataclass(slots=True)
class Answer:
    """The response of one store."""

    number: int
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def document(self) -> Any:
        """Returns the JSON of the body."""
        return json.loads(self.body)

    @property
    def well(self) -> bool:
        return self.status < 300

    @property
    def is_away(self) -> bool:
        """Returns whether Redis did not answer there."""
        return self.status == 503

    @property
    def kind(self) -> str:
        """Returns the type of the problem, or ""."""
        return str(self.document.get("type", "")) if self.status >= 400 else ""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to several stores."""

    environ: Environ
    named: Mapping[str, str]
    """The variables of its path."""
    body: bytes
    """At most one byte more than allowed: the app rejects a longer one."""


class Store(Protocol):
    """The app of one store."""

    number: int

    def call(self, environ: Environ, body: bytes = b"", about: Environ | None = None) -> Answer:
        """Returns the app's response to a request; `about` are further keys of its environment."""


class Stores(Protocol):
    """All stores, for functions that endpoints of features name in place of `Across`. Each method raises `Refusal`."""

    @property
    def first(self) -> Store:
        """Returns the first one that answers."""

    def named(self, number: object, field: tuple[str, ...]) -> Store:
        """Returns the store whose number a field of a body has."""

    def locate_all(self, ids: Iterable[str]) -> Mapping[str, Store]:
        """Returns the stores of tasks; for an unknown id, one that may have it."""

    def holders(self, ids: Iterable[str]) -> Mapping[str, Store | None]:
        """Returns the stores that ids name, else those that have their records."""

    def home(self, task: Mapping[str, Any], key: str, parent: Store | None) -> Store:
        """Returns the store of a new task: by its options, else by the key; `parent` is its parent's, if known."""

    def store_in_order(
        self, task: Mapping[str, Any], key: str, first: Store, environ: Environ, body: bytes, about: Environ
    ) -> Answer:
        """Returns the answer of the first store that takes a task, beginning with one of them."""

    def ask(self, call: Call) -> Sequence[Answer]:
        """Returns the answers of all stores that can be reached."""

    def combined(self, answers: Sequence[Answer], merge: Merge) -> Answer:
        """Merges the documents of all stores into one answer."""
