"""One line about the data of a task, for lists: by the template of its type, or of its first fields. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

PREVIEW = "x-preview"
"""The annotation of a type's JSON Schema that holds its template."""
LONGEST = 120
"""Characters of a preview."""
LONGEST_TEMPLATE = 200
MOST_FIELDS = 4
_FIELD = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


class PreviewError(Exception):
    """A template cannot be used."""


def check_template(template: object) -> str:
    """Returns the template. Raises PreviewError with the required change."""
    if not isinstance(template, str) or not template.strip() or len(template) > LONGEST_TEMPLATE:
        raise PreviewError(f"preview must be a text of 1 to {LONGEST_TEMPLATE} characters")
    if re.search(r"[{}]", _FIELD.sub("", template)):
        raise PreviewError("preview has a single brace: write fields as {name}")
    for name in _FIELD.findall(template):
        if not _PATH.fullmatch(name):
            raise PreviewError(f"preview: {{{name}}} is not a field: use a name or a path, such as {{customer.name}}")
    return template


def preview(data: Any, template: object = None) -> str:
    """Returns data in one line of at most `LONGEST` characters; "" for none."""
    if isinstance(template, str):
        text = _FIELD.sub(lambda field: _text(_value(data, field[1])), template[:LONGEST_TEMPLATE])
    else:
        text = ", ".join(islice(_parts(data), MOST_FIELDS))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _parts(data: Any) -> Iterator[str]:
    """Yields the first fields that hold one value each, or other data as a whole."""
    if not isinstance(data, Mapping):
        if data is not None:
            yield _text(data)
        return
    for name, value in islice(data.items(), 10 * MOST_FIELDS):
        if value is not None and not isinstance(value, dict | list):
            yield f"{name[:LONGEST]}: {_text(value)}"


def _value(data: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(name)
        elif isinstance(data, list) and name.isdecimal() and len(name) < 7:
            data = data[int(name)] if int(name) < len(data) else None
        else:
            return None
    return data


def _text(value: Any) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[: LONGEST + 1]
