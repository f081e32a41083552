"""Names of queues, and which of them a worker takes from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

QUEUE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
QUEUE_PATTERN = re.compile(r"[A-Za-z0-9._*-]{1,64}")
ANY_QUEUE_NAME = re.compile(rf"(?:rq:)?{QUEUE_NAME.pattern}")
"""Also the queues of `adopted_queue`, to which nothing is submitted."""
DEFAULT = "default"
"""Another name of the default priority."""


def adopted_queue(name: str) -> str:
    """Returns the queue of the tasks that are made of the jobs in a queue of RQ.

    No pattern matches it: as with RQ, only workers that serve the queue run its jobs, which others may not have the
    code or the machine for.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:50]
    return f"rq:{plain}" if plain == name else f"rq:{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def matches(pattern: str, name: str) -> bool:
    """Returns whether a queue has this name, or matches this pattern; `*` is any characters but `:`."""
    if "*" not in pattern:
        return pattern == name
    return re.fullmatch("[^:]*".join(map(re.escape, pattern.split("*"))), name) is not None


class QueueSelection:
    """The queues that a worker takes from, with their weights and their order."""

    def __init__(
        self,
        entries: Mapping[str, int | None],
        configured: Mapping[str, int],
        default: str,
        strict: bool = False,
        bounded: Iterable[str] = (),
        beside: Iterable[str] = (),
    ) -> None:
        """`entries` are names and patterns, each with its weight if it has one; without any, all queues are taken.

        `configured` are the weights of QUEUES, `default` is the default priority, and `bounded` are the queues with a
        limit of their own, which claims must name. Those of `beside` are taken too, whatever the entries are.
        """
        given = {default if name == DEFAULT else name: weight for name, weight in entries.items()}
        entries = given or {**dict.fromkeys(configured), "*": None}
        beside = tuple(beside)
        self._entries = {**entries, **dict.fromkeys(beside)}
        self._configured = configured
        self._usual_places = {name: at for at, name in enumerate((*configured, *beside))}
        self._default_weight = configured[default]
        self.strict = strict
        self.patterns = tuple(name for name in self._entries if "*" in name)
        names = [name for name in self._entries if "*" not in name]
        self.names = self.in_order({*names, *filter(self.takes, (*configured, *bounded))})
        """The queues that every claim names."""

    def __str__(self) -> str:
        return ", ".join(self.entries)

    @property
    def entries(self) -> tuple[str, ...]:
        """Returns the queues that every claim names, and the patterns."""
        return (*self.names, *self.patterns)

    def takes(self, name: str) -> bool:
        """Returns whether the worker takes from a queue."""
        return self._entry(name) is not None

    def weight(self, name: str) -> int:
        """Returns the weight of a queue: from its own entry, the first pattern that matches, or QUEUES."""
        entry = self._entry(name)
        own = self._entries[entry] if entry is not None else None
        return own or self._configured.get(name, self._default_weight)

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Returns queues in the order in which a claim names them: as in the entries if strict, else by weight."""
        places = {entry: at for at, entry in enumerate(self._entries)} if self.strict else {}

        def place(name: str) -> tuple[int, int, int, str]:
            rank = places.get(self._entry(name) or "", 0)
            return rank, -self.weight(name), self._usual_places.get(name, len(self._usual_places)), name

        return tuple(sorted(names, key=place))

    def lua_patterns(self) -> str:
        """Returns the patterns as Lua has them, separated by spaces."""
        escaped = (pattern.replace(".", "%.").replace("-", "%-").replace("*", "[^:]*") for pattern in self.patterns)
        return " ".join(f"^{pattern}$" for pattern in escaped)

    def _entry(self, name: str) -> str | None:
        if name in self._entries:
            return name
        return next((pattern for pattern in self.patterns if matches(pattern, name)), None)
