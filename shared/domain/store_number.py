"""The number of a store, with which the ids that were made in it end."""

from __future__ import annotations

import re

from firmq.shared.domain.task import ALPHABET, in_base32

_NUMBERED = re.compile(rf"(?:[{ALPHABET}]{{26}}|[0-9a-f]{{16}})([{ALPHABET}]{{2}})(?=-|$)")
"""A ULID or the id of a bulk action, followed by a number; ids derived from it continue after a hyphen."""


def id_suffix(number: int) -> str:
    """Returns what ids end with in a store: two characters, or nothing in store 0, so that one that is joined by others
    keeps its ids."""
    return in_base32(number, 10) if number else ""


def store_of_id(said: str) -> int | None:
    """Returns the number of the store that an id names, or None for one that names none.

    Such a task was made in store 0, by a schedule, or of an RQ job.
    """
    found = _NUMBERED.match(said)
    if found is None:
        return None
    return ALPHABET.index(found[1][0]) << 5 | ALPHABET.index(found[1][1])
