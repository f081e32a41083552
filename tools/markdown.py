"""Blocks of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = Sequence[object]


def table(head: str, rows: Iterable[Row]) -> str:
    """Returns a Markdown table; `head` has commas between its columns. Without rows, nothing."""
    names = head.split(", ")
    lines = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *lines)) if lines else ""


def joined(*blocks: str) -> str:
    """Returns the blocks that are not empty with an empty line between them."""
    return "\n\n".join(block for block in blocks if block)
