"""How `make verify-compose` and `make verify-kubernetes` show what they found: a line for each claim."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def claim(text: str) -> Iterator[list[str]]:
    """Prints a line for what was shown, with its time; what is put into the list is shown too."""
    began, figures = time.monotonic(), list[str]()
    yield figures
    print(f"ok  {time.monotonic() - began:6.1f} s  {text}{''.join(f', {each}' for each in figures)}", flush=True)
