"""Suggestions while a search is typed: pages, words, and the values of a field with their counts.

Their number and size are bounded, and their data is cached as for pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from firmq.dashboard.context import context, opened
from firmq.dashboard.feature import features
from firmq.dashboard.present import clip
from firmq.shared.domain.search import NAMES, SearchError
from firmq.shared.stores.selection import Source
from firmq.shared.stores.tasks import Filter, filter_of

if TYPE_CHECKING:
    from firmq.dashboard.queries import Queries

MOST = 20
"""Suggestions of one answer."""
SHOWN = 80
"""Characters of a value that are shown; a longer one ends with an ellipsis."""
LONGEST = 200
"""Characters of a value that can be suggested."""
SAMPLE = 500
"""Tasks from which fields, values and tags are taken."""

PAGES: dict[str, str] = {
    "/": "Overview",
    "/tasks": "Tasks",
    "/batches": "Batches",
    "/schedules": "Schedules",
    "/types": "Types",
    "/dead-letters": "Dead letters",
    "/workers": "Workers",
    "/queues": "Queues",
    "/limits": "Limits",
    "/locks": "Locks",
    "/audit": "Audit",
}
"""The pages of the core that suggestions lead to."""


def all_pages() -> Mapping[str, str]:
    """Returns the pages that suggestions lead to, by their paths."""
    shown = (feature.navigation for feature in features() if feature.in_menu(context.settings))
    return PAGES | {path: name for entries in shown for _, path, name in entries}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggestion: its text, the search or path that it leads to, and the number of tasks or workers.

    `partial` means that a value is still to be typed.
    """

    label: str
    search: str = ""
    path: str = ""
    count: int | None = None
    note: str = ""
    partial: bool = False


Values = Iterable[tuple[str, int, str]]
"""Values of a field, each with its count and a note."""


def suggest(queries: Queries, typed: str) -> list[Suggestion]:
    """Returns suggestions for the last word of a search, the most frequent values first. Raises StoreUnavailable."""
    before, word = _split(typed)
    name, colon, part = word.partition(":")
    if colon:
        return _values(queries, before, name, part)
    wanted = word.casefold()
    pages = (
        []
        if before
        else [Suggestion(f"Go to {title}", path=path) for path, title in all_pages().items() if _has(title, wanted)]
    )
    words = [_partial(before, each) for each in NAMES if each.casefold().startswith(wanted)]
    types = _values(queries, before, "type", word) if wanted else []
    return [*types[:5], *pages, *words][:MOST]


def _split(typed: str) -> tuple[str, str]:
    """Returns the words before the last one, and the last one, which may have an open quotation mark."""
    at, quoted = 0, False
    for place, letter in enumerate(typed):
        quoted ^= letter == '"'
        if letter == " " and not quoted:
            at = place + 1
    return typed[:at], typed[at:].replace('"', "")


def _partial(before: str, word: str) -> Suggestion:
    start = "data." if word == "data.NAME:" else word
    return Suggestion(word, search=before + start, partial=True)


def _values(queries: Queries, before: str, name: str, part: str) -> list[Suggestion]:
    found = [each for each in _read(queries, before, name) if _has(f"{each[0]} {each[2]}", part.casefold())]
    found.sort(key=lambda each: (-each[1], each[0]))
    return [_value(before, name, *each) for each in found if len(each[0]) <= LONGEST][:MOST]


def _value(before: str, name: str, value: str, count: int, note: str) -> Suggestion:
    said = json.dumps(value, ensure_ascii=False) if not value or any(each in value for each in ' "\t') else value
    label = f"{clip(name, SHOWN)}:{clip(said, SHOWN)}"
    return Suggestion(label, search=f"{before}{name}:{said}", count=count, note=clip(note, SHOWN) if note else "")


def _has(text: str, part: str) -> bool:
    return part in text.casefold()


def _read(queries: Queries, before: str, name: str) -> Values:
    if name.startswith("data."):
        return _of_data(queries, before, name.removeprefix("data."))
    if name == "tag":
        return _plain(opened("search")(Source(_filter(before)), None, SAMPLE).tags.counts)
    return _READERS[name](queries) if name in _READERS else []


def _filter(before: str) -> Filter:
    """Returns the filter of the words before; all tasks while they cannot be read."""
    try:
        found = filter_of({}, before)
    except SearchError:
        return Filter()
    return Filter() if any(context.redaction.hides_path(each.path) for each in found.data) else found


def _of_data(queries: Queries, before: str, path: str) -> Values:
    if not path or context.redaction.hides_path(path):
        return []
    values = opened("search")(Source(_filter(before)), path, SAMPLE).fields[path]
    return _plain(values.counts)


def fields_of(queries: Queries, typed: str) -> list[Suggestion]:
    """Returns the fields of the data of the tasks that match the words before, for a word such as `data.cu`."""
    before, word = _split(typed)
    found = opened("search")(Source(_filter(before)), None, SAMPLE)
    shown = [
        (name, found.tasks - each.missing)
        for name, each in found.fields.items()
        if not context.redaction.hides_path(name) and f"data.{name}".casefold().startswith(word.casefold())
    ]
    return [
        Suggestion(clip(f"data.{name}:", SHOWN), search=f"{before}data.{name}:", count=count, partial=True)
        for name, count in shown[:MOST]
    ]


def _plain(counts: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    return ((value, count, "") for value, count in counts.items())


def _types(queries: Queries) -> Values:
    return _plain(queries.type_counts(tuple(sorted(queries.snapshot().types))))


def _queues(queries: Queries) -> Values:
    return ((each.name, each.pending, "pending") for each in queries.snapshot().queues)


def _states(queries: Queries) -> Values:
    return ((state.value, count, "") for state, count in queries.snapshot().counts.items())


def _workers(queries: Queries) -> Values:
    return ((each.name, each.active, "running") for each in queries.snapshot().workers)


def _versions(queries: Queries) -> Values:
    versions = [each.app_version for each in queries.snapshot().workers if each.app_version]
    return ((each, versions.count(each), "workers") for each in dict.fromkeys(versions))


def _causes(queries: Queries) -> Values:
    return ((each.key, each.count, f"{each.type}: {each.error}") for each in queries.failure_groups(0)[0])


def _errors(queries: Queries) -> Values:
    counts: dict[str, int] = {}
    for each in queries.failure_groups(0)[0]:
        counts[each.error] = counts.get(each.error, 0) + each.count
    return ((error, count, "dead letters") for error, count in counts.items())


_READERS: Mapping[str, Callable[[Queries], Values]] = {
    "type": _types,
    "queue": _queues,
    "state": _states,
    "status": _states,
    "worker": _workers,
    "version": _versions,
    "cause": _causes,
    "error": _errors,
}


def as_documents(found: Sequence[Suggestion]) -> list[dict[str, object]]:
    """Returns suggestions for a browser, each with the path that it leads to."""
    return [
        {
            "label": each.label,
            "search": each.search,
            "path": each.path or ("" if each.partial else f"/tasks?{urlencode({'search': each.search})}"),
            "count": each.count,
            "note": each.note,
        }
        for each in found
    ]
