"""Generates the client for threads from that for asyncio; `--check` writes nothing and exits with 1 if a file differs.

Removes `async` and `await`, and renames what has another name without them. What differs by more is in modules that are
written by hand for both: `connections`, `concurrency` and `senders`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("shared/client")
SOURCE = TARGET / "aio"
MODULES = ("client", "feed", "resources", "sending", "transport", "watching")
RENAMED = {
    "AsyncBatchFeed": "BatchFeed",
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclosing": "closing",
    "anext": "next",
    "For one event loop at a time": "Thread-safe",
    "firmq.shared.client.aio": "firmq.shared.client",
}
_NAME = re.compile(rf"\b(?:(?:async|await) |({'|'.join(map(re.escape, RENAMED))})\b)")


def without_async(source: str) -> str:
    """Returns the source of a module without async and await."""
    return _NAME.sub(lambda found: RENAMED[found[1]] if found[1] else "", source)


def generated(module: str) -> str:
    """Returns a module of the client for threads, formatted."""
    path = SOURCE / f"{module}.py"
    text = f"# Generated from {path} by `python -m tools.unasync`: change that file.\n"
    text += without_async((ROOT / path).read_text())
    target = str(TARGET / path.name)
    text = _ruff(
        "check", "--select", "I,C416,UP028", "--fix-only", "--unsafe-fixes", "--stdin-filename", target, "-", given=text
    )
    return _ruff("format", "--stdin-filename", target, "-", given=text)


def _ruff(*arguments: str, given: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments], cwd=ROOT, input=given, capture_output=True, text=True, check=True
    )
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.unasync", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args(arguments).check
    differing = []
    for module in MODULES:
        path, text = ROOT / TARGET / f"{module}.py", generated(module)
        if path.exists() and path.read_text() == text:
            continue
        differing.append(module)
        if not check:
            path.write_text(text)
    if check and differing:
        print(f"out of date, run `python -m tools.unasync`: {', '.join(differing)}", file=sys.stderr)
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
