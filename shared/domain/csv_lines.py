"""CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

MEDIA_TYPE = "text/csv; charset=utf-8"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a cell begins that spreadsheets take for a formula."""


def csv_lines(rows: Iterable[Sequence[str]]) -> Iterator[bytes]:
    """Yields the lines of a CSV file. No cell is a formula for a spreadsheet."""
    line = io.StringIO()
    writer = csv.writer(line)
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row])
        yield line.getvalue().encode("utf-8", "backslashreplace")
        line.seek(0)
        line.truncate()
