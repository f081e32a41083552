"""Output of the CLI: tables and progress bars, or JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, TextIO

from firmq.shared.client import Batch, Problem, Task
from firmq.shared.domain import sanitize

BAR = 30
_ONE_LINE = str.maketrans({"\n": "\\n", "\t": "\\t"})


def columns(text: str) -> dict[str, str]:
    """Returns the titles of columns by field: of "at WHEN, due_at" WHEN and DUE AT."""
    pairs = (each.strip().partition(" ") for each in text.split(","))
    return {name: title or name.replace("_", " ").upper() for name, _, title in pairs}


class Output:
    """An output stream with its format."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        self.stream = stream
        self.as_json = as_json
        self.terminal = stream.isatty() and not as_json

    def line(self, text: str) -> None:
        """Prints a line of text; nothing in JSON mode."""
        if not self.as_json:
            print(_one_line(text), file=self.stream, flush=True)

    def either(self, value: Any, text: str) -> None:
        """Prints one object as JSON, or a line of text."""
        self.value(value) if self.as_json else self.line(text)

    def ended(self, done: Any) -> None:
        """Prints the new state of a task."""
        self.either(done, f"{done.task_id} {done.status}")

    def value(self, value: Any) -> None:
        """Prints one object: one field per line, or as JSON."""
        plain = _plain(value)
        if self.as_json:
            print(dump(plain), file=self.stream, flush=True)
            return
        width = max((len(name) for name in plain), default=0)
        for name, each in plain.items():
            if each not in (None, [], {}, ""):
                self.line(f"{name:<{width}}  {_shown(each)}")

    def table(self, columns: Mapping[str, str], rows: Iterable[Any]) -> None:
        """Prints many objects: the named fields in columns, or each as JSON. Prints in chunks of 200 rows."""
        piece: list[Any] = []
        first = True
        for row in rows:
            if self.as_json:
                print(dump(_plain(row)), file=self.stream)
                continue
            piece.append([_shown(_plain(row).get(name)) for name in columns])
            if len(piece) == 200:
                self._piece(list(columns.values()) if first else None, piece)
                piece, first = [], False
        if piece:
            self._piece(list(columns.values()) if first else None, piece)
        elif first:
            self.line("none")

    def left_out(self, names: Sequence[str], advice: str) -> None:
        """Reports on standard error which items a list could not show."""
        if names and self.as_json:
            print(dump({"unreadable": names}), file=sys.stderr)
        elif names:
            print(f"firmq: unreadable, not shown: {', '.join(map(dump, names))}; {advice}", file=sys.stderr)

    def _piece(self, titles: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
        shown = [*([titles] if titles else []), *rows]
        widths = [max(len(row[at]) for row in shown) for at in range(len(shown[0]))]
        for row in shown:
            self.line("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())

    def progress(self, seen: Task | Batch) -> None:
        """Prints progress: on a terminal one line that is updated, otherwise a line per change."""
        if self.as_json:
            self.value(seen)
        elif self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{_one_line(bar(seen))[:width]:<{width}}", end="", file=self.stream, flush=True)
        else:
            self.line(bar(seen))

    def end_progress(self) -> None:
        if self.terminal:
            print(file=self.stream)

    def fail(self, error: Exception) -> None:
        """Prints the error and its notes on standard error, a line each; in JSON mode the problem document."""
        if self.as_json and isinstance(error, Problem):
            print(dump(error.document), file=sys.stderr)
            return
        notes = [note.replace("idempotency_key=", "--idempotency-key ") for note in getattr(error, "__notes__", ())]
        for text in (error, *notes):
            print(f"firmq: {_one_line(text)}", file=sys.stderr)


def bar(seen: Task | Batch) -> str:
    """Returns the state and progress in one line."""
    if isinstance(seen, Batch):
        counts = ", ".join(f"{count} {state}" for state, count in seen.counts.items() if count)
        return f"{_bar(seen.progress)}  {seen.ended} of {seen.total} ended  {counts}"
    done = 1.0 if seen.status.ended else seen.progress.fraction if seen.progress else 0.0
    words = [seen.status.value, f"attempt {seen.attempt}" if seen.attempt > 1 else ""]
    if seen.progress and not seen.status.ended:
        words.append(seen.progress.message)
    if seen.error:
        words.append(f"{seen.error.type}: {seen.error.message}")
    return f"{_bar(done)}  {'  '.join(word for word in words if word)}"


def dump(value: Any) -> str:
    """Returns JSON that is safe to print on a terminal."""
    return sanitize.plain(json.dumps(value, ensure_ascii=False, default=_unknown))


def _bar(fraction: float) -> str:
    full = round(BAR * max(0.0, min(1.0, fraction)))
    return f"[{'#' * full}{'.' * (BAR - full)}] {fraction:4.0%}"


def _plain(value: Any) -> dict[str, Any]:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else dict(value)


def _unknown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict | list | tuple):
        return dump(value)
    return _one_line(value)


def _one_line(value: object) -> str:
    """Returns text without line breaks and terminal control sequences, whatever its origin."""
    return sanitize.plain(value).translate(_ONE_LINE)
