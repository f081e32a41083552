"""The search of task lists: `type:charge-card state:failed data.customer:42 age>1h`.

A search is a list of words, separated by spaces; a task matches all of them. A word is a field, a colon and a value, an
age such as `age>1h`, or the beginning or the end of an id. A value with spaces is in double quotes, as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from firmq.shared.domain.queue_selection import ANY_QUEUE_NAME
from firmq.shared.domain.step import SIGNAL_NAME
from firmq.shared.domain.task import TASK_ID, TaskState
from firmq.shared.domain.task_fields import TAG

LONGEST = 500
"""Characters of a search."""
MOST_DATA = 4
"""Fields of the data that a search may have."""
DEEPEST = 8
"""Names in the path of such a field: Redis scans the data once for each."""
CAUSE = re.compile(r"[0-9a-z]{1,64}")

_WORD = re.compile(r'(?P<name>[^\s:<>"]+)(?P<sign>[:<>])(?P<value>"(?:[^"\\]|\\.)*"(?!\S)|[^\s"]\S*|(?!\S))|\S+')
_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,300}))?")
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(s|min|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_AGE = 100 * 365 * 86_400
_WORDS = ("true", "false", "null")


class SearchError(ValueError):
    """A search that cannot be read. The message names the word and the allowed syntax."""


class _Number(str):
    """A number of a JSON text, as it is written: a float would lose digits."""


@dataclass(frozen=True, slots=True)
class DataField:
    """A field of the data and its value, as it is typed.

    Numbers compare by value: 1, 1.0 and 10e-1 are equal, and every digit counts. `1`, `true` and `null` without quotes
    also match the same text in a string; a quoted value matches strings only.
    """

    path: str
    value: str
    quoted: bool = False

    @property
    def forms(self) -> dict[str, str]:
        """Returns the values it matches: a text, and where it may be one, a canonical number or a word of JSON."""
        found = {"text": self.value}
        if not self.quoted:
            found |= {"number": number} if (number := canonical(self.value)) else {}
            found |= {"word": self.value} if self.value in _WORDS else {}
        return found

    def matches(self, data: Any) -> bool:
        """Returns whether data that `load` read has the value: at the path, or in a list there."""
        for name in self.path.split("."):
            if not isinstance(data, dict) or name not in data:
                return False
            data = data[name]
        forms = self.forms
        return any(_is(each, forms) for each in (data if isinstance(data, list) else [data]))

    def __str__(self) -> str:
        return f"data.{self.path}:{json.dumps(self.value) if self.quoted or ' ' in self.value else self.value}"


def load(text: bytes) -> Any:
    """Returns data whose numbers are kept as they are written. Raises ValueError."""
    return json.loads(text, parse_float=_Number, parse_int=_Number)


def canonical(number: str) -> str | None:
    """Returns the canonical text of a JSON number; None for anything else. `_filter.lua` does the same."""
    found = _NUMBER.fullmatch(number)
    if not found:
        return None
    sign, whole, fraction, exponent = found[1], found[2], found[3] or "", found[4] or "0"
    digits = (whole + fraction).lstrip("0")
    shortest = digits.rstrip("0")
    return f"{sign}{shortest}e{int(exponent) - len(fraction) + len(digits) - len(shortest)}" if shortest else "0"


def _is(value: Any, forms: Mapping[str, str]) -> bool:
    if isinstance(value, _Number):
        return canonical(value) == forms.get("number", "")
    if isinstance(value, str):
        return value == forms["text"]
    return not isinstance(value, dict | list) and json.dumps(value) == forms.get("word")


def parse(text: str) -> dict[str, Any]:
    """Returns the fields of the `Filter` that a search expands to. Raises SearchError."""
    if len(text) > LONGEST:
        raise SearchError(f"the search has {len(text)} characters: shorten it to {LONGEST}")
    found: dict[str, Any] = {}
    for word, name, value, quoted in _words(text):
        field, read = _field(word, name)
        try:
            if field == "data":
                fields = (*found.get("data", ()), _data(name.removeprefix("data."), value, quoted))
                found["data"] = _at_most(fields)
                continue
            read_value = read(value)
        except ValueError as error:
            raise SearchError(f"{_shown(word)}: {error}") from None
        if field in found:
            raise SearchError(f"{_shown(word)}: {name.rstrip('<>')} appears twice: remove one")
        found[field] = read_value
    return found


def parse_data(text: str) -> tuple[DataField, ...]:
    """Returns the fields of `customer.id:42 amount:3`, the same without `data.`. Raises SearchError."""
    found: tuple[DataField, ...] = ()
    for word, name, value, quoted in _words(text):
        if word == value:
            raise SearchError(f"{_shown(word)} needs a field and a value, for example customer.id:42")
        try:
            found = _at_most((*found, _data(name, value, quoted)))
        except ValueError as error:
            raise SearchError(f"{_shown(word)}: {error}") from None
    return found


def _at_most(fields: tuple[DataField, ...]) -> tuple[DataField, ...]:
    if len(fields) > MOST_DATA:
        raise ValueError(f"a search has at most {MOST_DATA} fields of the data")
    return fields


def _words(text: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yields the words: whole, its field with the sign of an age, its value, and whether that is quoted."""
    for found in _WORD.finditer(text):
        word, name, sign, value = found[0], found["name"], found["sign"], found["value"]
        if name is None:
            yield word, "id", word, False
            continue
        quoted = value.startswith('"')
        try:
            value = json.loads(value) if quoted else value
        except ValueError:
            raise SearchError(f"{_shown(word)}: the text in quotes is not valid, escape it as in JSON") from None
        if not value and not quoted:
            raise SearchError(f"{_shown(word)}: the value is missing")
        yield word, name if sign == ":" else f"{name}{sign}", value, quoted


def _field(word: str, name: str) -> tuple[str, Callable[[str], Any]]:
    if name.startswith("data.") and name != "data.":
        return "data", str
    if name not in _FIELDS:
        raise SearchError(f"{_shown(word)}: there is no field {_shown(name)}, use one of {', '.join(NAMES)}")
    return _FIELDS[name]


def _shown(word: str) -> str:
    return repr(word if len(word) <= 60 else f"{word[:59]}…")


def _data(path: str, value: str, quoted: bool) -> DataField:
    if not all(path.split(".")) or len(path) > 200 or path.endswith(("<", ">")):
        raise ValueError("name a field of the data and its value, as in data.customer.id:42")
    if path.count(".") >= DEEPEST:
        raise ValueError(f"the path may have at most {DEEPEST} names")
    if len(value) > 200:
        raise ValueError("the value may have at most 200 characters")
    return DataField(path, value, quoted)


def _text(most: int) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not 1 <= len(value) <= most:
            raise ValueError(f"the value must have 1 to {most} characters")
        return value

    return read


def _like(pattern: re.Pattern[str], what: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"the value must be {what}")
        return value

    return read


def _state(value: str) -> TaskState:
    if value not in list(TaskState):
        raise ValueError(f"the value must be one of {', '.join(TaskState)}")
    return TaskState(value)


def _age(value: str) -> timedelta:
    found = _AGE.fullmatch(value)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_AGE:
        raise ValueError("the age must be a number with s, m, h, d or w, such as age>90m")
    return timedelta(seconds=seconds)


def _moment(value: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("the value must be a time such as 2030-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _yes(value: str) -> bool:
    if value != "yes":
        raise ValueError("the value must be yes")
    return True


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "state": ("state", _state),
    "status": ("state", _state),
    "type": ("type", _text(100)),
    "queue": ("queue", _like(ANY_QUEUE_NAME, "1 to 64 characters of A-Z a-z 0-9 . _ -")),
    "tag": ("tag", _like(TAG, "1 to 64 characters of A-Z a-z 0-9 _ . : @ / -")),
    "error": ("error", _text(200)),
    "cause": ("cause", _like(CAUSE, "the key of a group of dead letters")),
    "worker": ("worker", _text(200)),
    "version": ("app_version", _text(64)),
    "by": ("submitted_by", _text(100)),
    "signal": ("signal", _like(re.compile(rf"\*|{SIGNAL_NAME.pattern}"), "the name of a signal, or * for any")),
    "id": ("id", _like(TASK_ID, "the beginning or the end of an id")),
    "age>": ("older_than", _age),
    "age<": ("newer_than", _age),
    "since": ("since", _moment),
    "until": ("until", _moment),
    "deleted": ("deleted", _yes),
}
NAMES = (*(f"{name}:" for name in _FIELDS if name[-1] not in "<>" and name != "status"), "data.NAME:", "age>", "age<")
"""The beginnings of words, as the errors and the suggestions name them."""
