"""`python -m tests.labs.documents` prints what comes of each row; 1 if one is not as the data file says."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.labs.documents.laboratory import system, try_all


def main() -> int:
    """Tries the rows on a system of its own."""
    failed = 0
    with tempfile.TemporaryDirectory() as place, system(Path(place)) as running:
        for tried in try_all(running, Path(place)):
            failed += bool(tried.wrong)
            text = " ".join(tried.row.text.split())
            print(f"{tried.row.document}  {text[:90]:90}  {tried.wrong or tried.verdict}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
