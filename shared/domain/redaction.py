"""Hides the values of fields in data and results."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "••••••"
"""The beginning of the placeholder of a redacted value."""
COPIES = ("result_base64",)
"""Fields that hold others in an encoding, and so are hidden with any: the result in the data of a webhook delivery."""


class Redaction:
    """Hides the values of fields by name, at any depth, or by path (`customer.iban`), also in texts that are JSON.

    Each placeholder has a number and a digest of the visible values, so it belongs to one hidden value of one record,
    even if it is moved while editing, and is invalid if the record was changed meanwhile.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = _any_of([*names, *COPIES] if names else [])
        self.paths = _any_of([name for name in names if "." in name])

    def hides(self, name: str, path: str) -> bool:
        """Returns whether a field is hidden; `path` is its name after the names of the fields that contain it."""
        return bool(self.names.match(name.lower()) or self.paths.match(path.lower()))

    def hides_path(self, path: str) -> bool:
        """Returns whether a field is hidden, or one of those that contain it; `path` has the names of all of them."""
        parts = path.split(".")
        return any(self.hides(part, ".".join(parts[: at + 1])) for at, part in enumerate(parts))

    def hide(self, value: Any) -> Any:
        """Returns the value with placeholders. Items of a list have the path of the list."""
        return self._seen(value)[0]

    def restore(self, edited: Any, original: Any) -> Any:
        """Returns the edited value with the hidden values restored. Raises ValueError if a placeholder is ambiguous.

        A hidden value may move to hidden fields only: under another name it would be visible.
        """
        return self._restored(edited, "", self._seen(original)[1], False)

    def emptied(self, value: Any, inside: str = "") -> Any:
        """Returns the value with a mark that `restore` refuses for each hidden value that is not a placeholder."""
        if isinstance(value, list):
            return [self.emptied(part, inside) for part in value]
        if isinstance(value, str):
            return self._nested(value)
        if not isinstance(value, dict):
            return value
        return {
            name: (part if isinstance(part, str) and part.startswith(f"{HIDDEN}#") else HIDDEN)
            if part is not None and self.hides(name, f"{inside}{name}")
            else self.emptied(part, f"{inside}{name}.")
            for name, part in value.items()
        }

    def _seen(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """Returns the value with placeholders, and the hidden value of each placeholder."""
        hidden: dict[str, Any] = {}
        seen = self._replaced(value, "", hidden, "")
        if hidden:
            mark = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:6]
            hidden = {}
            seen = self._replaced(value, "", hidden, f"-{mark}")
        return seen, hidden

    def _replaced(self, value: Any, inside: str, hidden: dict[str, Any], mark: str) -> Any:
        if isinstance(value, list):
            return [self._replaced(part, inside, hidden, mark) for part in value]
        if isinstance(value, str) and (nested := self._nested(value)) != value:
            hidden[nested] = value
            return nested
        if not isinstance(value, dict):
            return value
        seen = {}
        for name, part in value.items():
            path = f"{inside}{name}"
            if part is not None and self.hides(name, path):
                seen[name] = f"{HIDDEN}#{len(hidden) + 1}{mark}"
                hidden[seen[name]] = part
            else:
                seen[name] = self._replaced(part, f"{path}.", hidden, mark)
        return seen

    def _nested(self, text: str) -> str:
        """Returns a text, without the hidden values in it if it is a JSON document."""
        value = document_in(text)
        return text if value is None or (seen := self.emptied(value)) == value else json.dumps(seen, ensure_ascii=False)

    def _restored(self, edited: Any, inside: str, hidden: Mapping[str, Any], unseen: bool) -> Any:
        """Restores one value; `unseen` means that an enclosing field is hidden."""
        if isinstance(edited, list):
            return [self._restored(part, inside, hidden, unseen) for part in edited]
        if isinstance(edited, dict):
            return {
                name: self._restored(part, f"{inside}{name}.", hidden, unseen or self.hides(name, f"{inside}{name}"))
                for name, part in edited.items()
            }
        if not isinstance(edited, str) or HIDDEN not in edited:
            return edited
        if edited not in hidden:
            raise ValueError(f"{edited[:60]} is not a current placeholder: reload the page, or enter a value")
        if not unseen and edited.startswith(HIDDEN):
            raise ValueError(f"{inside[:-1] or 'the data'} is not hidden, so {edited} would be visible: move it back")
        return hidden[edited]


def document_in(text: str) -> Any:
    """Returns the object or the list that a text is the JSON of; None for any other text."""
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def _any_of(globs: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(each.lower()) for each in globs) or "(?!)")
