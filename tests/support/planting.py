"""A bug is planted by a small change of a text, whose place must be found exactly once."""

from __future__ import annotations


def plant(text: str, old: str, new: str) -> str:
    """The text with the bug in it. Raises LookupError when the code has changed and the bug must be made anew."""
    if (found := text.count(old)) != 1:
        raise LookupError(f"{old!r} is there {found} times instead of once")
    return text.replace(old, new)
