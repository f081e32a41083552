"""Records with named fields as arguments of a script (`lua/common/_rows.lua`).

Names are sent once for all records, which takes Redis less time than an encoding of each: the values stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Value: TypeAlias = str | bytes | int


def as_rows(records: Sequence[Mapping[str, Value | None]]) -> list[Value]:
    """Returns how many fields the records have, their names, and the values; the script sees no field that is None."""
    names = list(dict.fromkeys(name for each in records for name, value in each.items() if value is not None))
    values = (each.get(name) for each in records for name in names)
    return [len(names), *names, *("" if value is None else value for value in values)]
