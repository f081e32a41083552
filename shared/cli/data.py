"""Reads the data of a task from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HELP = "JSON, or any other text as a string; @FILE reads a file, - standard input"


def read_data(given: str | None) -> Any:
    """Returns the data of an argument. Raises OSError or UnicodeDecodeError for a file that cannot be read."""
    if given is None:
        return None
    text = given
    if given == "-":
        text = sys.stdin.read()
    elif given.startswith("@"):
        text = Path(given[1:]).read_text(encoding="utf-8-sig")
    try:
        return json.loads(text)
    except ValueError:
        return text
