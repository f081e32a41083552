"""Merges the documents of several partitions: pages by their order, counts by their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from firmq.gateway.http.across import Document, Merge
from firmq.shared.features.partitions.merged_pages import Part, merge_pages, order

Parts: TypeAlias = Mapping[int, Document]
"""Documents by the number of their partition."""


# --- pages ---


def page(
    parts: Parts,
    positions: Mapping[int, Sequence[str]],
    before: Mapping[int, str | None],
    limit: int,
    key: Callable[[str], Any] = order,
) -> Document:
    """Returns the first `limit` items of all pages, and the cursor after them, as `merge_pages` does."""
    pages = {number: Part(each["items"], positions[number], each["next_cursor"]) for number, each in parts.items()}
    items, cursor = merge_pages(pages, before, limit, key)
    return with_unreadable({**first(parts), "items": items, "next_cursor": cursor}, parts)


# --- documents ---


def first(parts: Parts) -> Document:
    """Returns the first document."""
    return next(iter(parts.values()))


def with_unreadable(merged: Document, parts: Parts) -> Document:
    if "unreadable" in merged:
        merged["unreadable"] = _united(each["unreadable"] for each in parts.values())
    return merged


def _united(values: Iterable[Iterable[Any]]) -> list[Any]:
    return list(dict.fromkeys(each for some in values for each in some))


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found


def _latest(values: Iterable[Any]) -> Any:
    return max(filter(None, values), default=None)


def _earliest(values: Iterable[Any]) -> Any:
    return min(filter(None, values), default=None)


_HOW: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys(("pending", "scheduled", "retrying", "foreign", "running", "waiting", "held", "count"), sum),
    **dict.fromkeys(("paused", "live"), any),
    **dict.fromkeys(("last_seen_at", "last_heartbeat_at", "last_used_at"), _latest),
    **dict.fromkeys(("oldest_at", "next_at"), _earliest),
}
"""How fields of one object in several partitions are merged; others are taken from the first partition."""


def together(parts: Parts, *, without: Sequence[str] = ()) -> Document:
    """Merges the documents of an object that several partitions have; `without` are fields that are not merged."""
    found = first(parts)
    for name, combine in _HOW.items():
        if name in found and name not in without:
            found = {**found, name: combine([each[name] for each in parts.values()])}
    return found


def by(*names: str, without: Sequence[str] = ()) -> Merge:
    """Returns a merge of lists whose items are the same object where these fields are equal."""

    def merge(parts: Parts) -> Document:
        same: dict[tuple[Any, ...], dict[int, Document]] = {}
        for number, found in parts.items():
            for item in found["items"]:
                same.setdefault(tuple(item[name] for name in names), {})[number] = item
        merged = {**first(parts), "items": [together(each, without=without) for each in same.values()]}
        return with_unreadable(merged, parts)

    return merge


def numbered(parts: Parts) -> Document:
    """Returns all items of lists of objects that each partition has for itself, each with its partition."""
    items = [{**item, "partition": number} for number, found in parts.items() for item in found["items"]]
    return {**first(parts), "items": items}


def waiting(parts: Parts) -> Document:
    """Returns the reasons of all partitions, the most frequent first."""
    same: dict[tuple[Any, Any], Document] = {}
    for found in parts.values():
        for each in found["reasons"]:
            known = same.get((each["reason"], each["name"]))
            same[each["reason"], each["name"]] = {**each, "count": each["count"] + (known["count"] if known else 0)}
    reasons = sorted(same.values(), key=lambda each: -each["count"])
    return {**first(parts), "total": sum(each["total"] for each in parts.values()), "reasons": reasons}


def timeline(parts: Parts) -> Document:
    """Returns the events of all partitions, the earliest first; one that each recorded is shown once."""
    events = {(each["at"][:19], each["kind"], each["title"]): each for one in parts.values() for each in one["events"]}
    return {
        **first(parts),
        "complete": all(each["complete"] for each in parts.values()),
        "incomplete": _united(each["incomplete"] for each in parts.values()),
        "events": sorted(events.values(), key=lambda each: str(each["at"])),
    }


def markdown(texts: Sequence[str]) -> str:
    """Returns the timelines of all partitions in Markdown as one, as `as_markdown` writes it."""
    parts = [text.rstrip("\n").split("\n\n") for text in texts]
    events = sorted({line for part in parts for line in part[1].split("\n") if line.startswith("- ")})
    notes = _united(part[3].split("\n") for part in parts if len(part) > 3)
    found = [parts[0][0], "\n".join(events) or parts[0][1], *(["Incomplete:", "\n".join(notes)] if notes else [])]
    return "\n\n".join(found) + "\n"


def breakdown(parts: Parts) -> Document:
    """Returns the counts of all partitions."""
    names = _united((each["field"] for each in one["fields"]) for one in parts.values())
    fields = [[each for one in parts.values() for each in one["fields"] if each["field"] == name] for name in names]
    return {
        "tasks": sum(each["tasks"] for each in parts.values()),
        "complete": all(each["complete"] for each in parts.values()),
        "large": sum(each.get("large", 0) for each in parts.values()),
        "tags": _values([each["tags"] for each in parts.values()]),
        "fields": [_values(each) for each in fields],
    }


def _values(parts: Sequence[Document]) -> Document:
    counts = _summed({each["value"]: each["tasks"] for each in one["values"]} for one in parts)
    top = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:100]
    return {
        "field": parts[0]["field"],
        "distinct": max(len(counts), *(each["distinct"] for each in parts)),
        "often": sum(each["often"] for each in parts),
        "missing": sum(each["missing"] for each in parts),
        "values": [{"value": value, "tasks": tasks} for value, tasks in top],
    }


_SEVERITY = ("ok", "degraded", "warning", "error", "unavailable")


def health(parts: Parts) -> Document:
    """Returns the health of the system: it accepts tasks as long as one partition does."""
    worst = max((each["status"] for each in parts.values()), key=_SEVERITY.index)
    usable = [each for each in parts.values() if each["status"] != "unavailable"]
    best = usable[0] if usable else first(parts)
    notes = [f"partition {number}: {note}" for number, each in parts.items() for note in each["notes"]]
    return {
        **best,
        "status": "degraded" if usable and worst == "unavailable" else worst,
        "workers": max((each["workers"] for each in usable if each["workers"] is not None), default=None),
        "queues": _summed(each["queues"] for each in usable if each["queues"]) or best["queues"],
        "notes": notes,
    }


def health_detail(parts: Parts) -> Document:
    """Returns the checks of all partitions, each with the number of its own."""
    checks = [
        {**check, "check": f"partition {number}: {check['check']}"}
        for number, each in parts.items()
        for check in each["checks"]
    ]
    worst = max((each["status"] for each in parts.values()), key=_SEVERITY.index)
    return {**first(parts), "status": worst, "checks": checks}
