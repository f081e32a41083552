"""Events on the timeline of an incident, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

ACTORS = {
    "": "An anonymous user",
    "anonymous": "An anonymous user",
    "housekeeper": "The housekeeper",
    "the REST API": "The REST API",
}
"""The subjects of sentences about changes that no named user made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; `link` is the path of its page in the dashboard."""

    at: datetime
    kind: str
    """One of deploy, alert, cause, worker, pause, limit, bulk, action."""
    title: str
    detail: str = ""
    link: str = ""


class Source(NamedTuple):
    """The events of a feature; its registered function returns this for given `Scripts`."""

    read: Callable[[datetime, datetime], tuple[Sequence[Event], str]]
    """Returns the events of a range, and a sentence about those that are missing ("" for none)."""
    tells: Sequence[str] = ()
    """Beginnings of entries of the audit record that these events describe better."""
