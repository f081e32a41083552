"""A bug is planted by a small change of a text, whose place must be found exactly once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.harness import ROOT

LEFT_OUT = shutil.ignore_patterns(
    ".venv",
    ".git",
    ".data",
    ".bench",
    ".faults",
    ".load",
    ".*_cache",
    "__pycache__",
    ".hypothesis",
    "node_modules",
    "*.egg-info",
)


def plant(text: str, old: str, new: str) -> str:
    """The text with the bug in it. Raises LookupError when the code has changed and the bug must be made anew."""
    if (found := text.count(old)) != 1:
        raise LookupError(f"{old!r} is there {found} times instead of once")
    return text.replace(old, new)


@contextmanager
def copied_code(bug: tuple[str, str, str] | None = None) -> Iterator[Path]:
    """A copy of the code in its own folder; with a bug if there is one: its file, the old text and the new one."""
    with tempfile.TemporaryDirectory(prefix="selftest-") as name:
        code = Path(name) / "code"
        shutil.copytree(ROOT, code, symlinks=True, ignore=LEFT_OUT)  # the package links to its parts
        if bug:
            path, old, new = bug
            (code / path).write_text(plant((code / path).read_text(), old, new))
        yield code
