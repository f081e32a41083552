"""Fields of a form made from the JSON Schema of a task type, and the data read back from them. Pure.

A field's name encodes how it is read (`GROUP/KIND/PROPERTY`), so data can be read without the schema, which may have
changed since the form was shown. A value that the simple field for it cannot hold exactly is shown as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from firmq.shared.domain import strict_json
from firmq.shared.domain.redaction import HIDDEN, Redaction
from firmq.shared.errors import InvalidJSON

Path = tuple[str | int, ...]
Mistakes = Sequence[tuple[Path, str]]
"""Mistakes by path: the first part of a path is `data`, or the name of another field."""

KINDS = ("text", "string", "number", "json", "words")
"""How the text of a field is read. An empty one is left out; as `string` it is "", with `?` at the end null."""
DEEPEST = 500
MOST = 40
"""Properties that get a field each; data with more is one field of JSON."""
AREA = 80
"""Characters of text from which on it gets several lines."""
ENTER_AGAIN = "enter this value again: a hidden value is not put into a form"
_MISSING = object()
_LIMITS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("format", "{}"),
    ("pattern", "matches {}"),
)


class Group(StrEnum):
    """The content of a field: a property of the data, all data, properties that have no field, or an option."""

    DATA = "data"
    WHOLE = "whole"
    REST = "rest"
    OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: `widget` is line, area, json, choice or secret; `mistakes` are shown beside it."""

    group: Group = Group.OPTION
    key: str
    kind: str = "text"
    widget: str = "line"
    label: str
    text: str = ""
    help: str = ""
    default: str = ""
    required: bool = False
    choices: Sequence[str] = ()
    mistakes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Returns its name in the form."""
        return f"{self.group}/{self.kind}/{self.key}"

    @property
    def place(self) -> Path:
        """Returns the path of the mistakes that belong to it."""
        if self.group is Group.OPTION:
            return (self.key,)
        return ("data", self.key) if self.group is Group.DATA else ("data",)


def fields_of(schema: Mapping[str, Any], redaction: Redaction, data: Any = _MISSING) -> list[Field]:
    """Returns the fields for data of this schema; `data` is their content, with placeholders for hidden values."""
    root = _resolved(schema, schema)
    properties = root.get("properties")
    is_object = data is _MISSING or isinstance(data, dict)
    if not isinstance(properties, Mapping) or not 0 < len(properties) <= MOST or not is_object:
        whole = Field(group=Group.WHOLE, key="", label="Data", required=True)
        return [_field(whole, root, data, False)]
    given = {} if data is _MISSING else data
    required = set(root.get("required", ()))
    found = []
    for name, each in properties.items():
        empty = Field(group=Group.DATA, key=name, label=name, required=name in required)
        found.append(_field(empty, _resolved(each, schema), given.get(name, _MISSING), redaction.hides(name, name)))
    rest = {name: value for name, value in given.items() if name not in properties}
    more = root.get("additionalProperties", True)
    if rest or not (more is False or (isinstance(more, Mapping) and more.get("not") == {})):
        about = {"description": "Further fields of the data, as a JSON object."}
        empty = Field(group=Group.REST, key="", label="Other fields")
        found.append(_field(empty, about, rest or _MISSING, False))
    return found


def options_of(fields: Sequence[Field], values: Mapping[str, Any]) -> list[Field]:
    """Returns the fields of options with values; the field `options` holds those that have no other."""
    named = {each.key for each in fields}
    rest = {name: value for name, value in values.items() if name not in named and value not in (None, [], {})}
    values = {**values, "options": rest or None}
    return [replace(each, text=_option_text(each, values.get(each.key))) for each in fields]


def read(posted: Mapping[str, str], depth: int) -> tuple[Any, dict[str, Any], list[tuple[Path, str]]]:
    """Returns the data of a form, its options, and the mistakes in both; JSON nests at most `depth` deep."""
    whole: Any = _MISSING
    data: dict[str, Any] = {}
    options: dict[str, Any] = {}
    mistakes: list[tuple[Path, str]] = []
    for each, text in _posted(posted):
        try:
            value = _read(each.kind, text, depth)
        except InvalidJSON as error:
            mistakes.append((each.place, str(error)))
            continue
        if value == HIDDEN:
            mistakes.append((each.place, ENTER_AGAIN))
        if value is _MISSING:
            continue
        into = options if each.group is Group.OPTION else data
        if each.group is Group.WHOLE:
            whole = value
        elif each.group is Group.DATA or (each.group is Group.OPTION and each.key != "options"):
            into[each.key] = value.strip() if each.group is Group.OPTION and isinstance(value, str) else value
        elif isinstance(value, dict):
            into |= {name: part for name, part in value.items() if name not in into}
        else:
            mistakes.append((each.place, "must be a JSON object"))
    return data if whole is _MISSING else whole, options, mistakes


def filled(fields: Iterable[Field], posted: Mapping[str, str], redaction: Redaction) -> list[Field]:
    """Returns the fields with the posted values, except for hidden ones, which have to be entered again."""
    found = {(each.group, each.key): each for each in fields}
    given = list(_posted(posted))
    if any(each.group is Group.WHOLE for each, _ in given):
        found = {key: each for key, each in found.items() if key[0] not in (Group.DATA, Group.REST)}
    elif any(each.group is Group.DATA for each, _ in given):
        found.pop((Group.WHOLE, ""), None)
    for each, text in given:
        key = each.group, each.key
        found[key] = _holding(replace(found.get(key, each), kind=each.kind), text.replace("\r\n", "\n"), redaction)
    return list(found.values())


def blamed(fields: Sequence[Field], mistakes: Mistakes) -> tuple[list[Field], list[str]]:
    """Returns the fields with the mistakes that belong to each, and the other mistakes."""
    by_place = {each.place: at for at, each in enumerate(fields)}
    found: dict[int, list[str]] = {}
    others = []
    for path, text in mistakes:
        rest = ("data",) if path[:1] == ("data",) else ("options",) if path not in ((), ("type",)) else ()
        place = next((each for each in (path[:2], path[:1], rest) if each in by_place), None)
        if place is None:
            others.append(f"{_dotted(path)}: {text}" if path else text)
        else:
            inside = _dotted(path if place == ("options",) else path[len(place) :])
            found.setdefault(by_place[place], []).append(f"{inside}: {text}" if inside else text)
    return [replace(each, mistakes=tuple(found.get(at, ()))) for at, each in enumerate(fields)], others


def _dotted(path: Path) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).lstrip(".")


def _posted(posted: Mapping[str, str]) -> Iterator[tuple[Field, str]]:
    for name, text in posted.items():
        group, _, rest = name.partition("/")
        kind, _, known = rest.partition("/")
        if group in list(Group) and kind.rstrip("?") in KINDS:
            yield Field(group=Group(group), kind=kind, key=known, label=known), text


def _holding(empty: Field, text: str, redaction: Redaction) -> Field:
    """Returns a field with a text that was posted."""
    if empty.widget == "secret" and text:
        return replace(empty, text=text if text.startswith(HIDDEN) else HIDDEN)
    if empty.kind.startswith("json") and (not empty.choices or text not in ("", *empty.choices)):
        return replace(empty, widget="json", text=_without_hidden(text, empty, redaction))
    is_long = empty.widget == "line" and ("\n" in text or len(text) > AREA)
    return replace(empty, text=text, widget="area" if is_long else empty.widget)


def _without_hidden(text: str, field: Field, redaction: Redaction) -> str:
    """Returns JSON with a mark for each hidden value that a user entered; other text unchanged."""
    try:
        value = _parse(text)
    except InvalidJSON:
        return text
    name = field.key if field.group is Group.DATA else ""
    shown = redaction.emptied({name: value})[name] if name else redaction.emptied(value)
    return text if shown == value else _indented(shown)


def _option_text(field: Field, value: Any) -> str:
    if value is None or value == []:
        return ""
    if field.kind == "words":
        return " ".join(value)
    return value if isinstance(value, str) else _indented(value)


def _field(empty: Field, schema: Mapping[str, Any], value: Any, hidden: bool) -> Field:
    kind, choices, nullable = _kind(schema)
    if empty.required:
        kind = f"{kind}?" if nullable else {"text": "string"}.get(kind, kind)
    is_text = kind.rstrip("?") in ("text", "string")
    usual = schema.get("default")
    made = replace(
        empty,
        kind=kind,
        widget="choice" if choices else "json" if kind.startswith("json") else "line",
        help=_help(schema),
        default=json.dumps(usual)[:AREA] if usual is not None and not hidden else "",
        choices=choices,
        text=choices[0] if len(choices) == 1 and empty.required else "",
    )
    if hidden:
        made = replace(made, widget="secret", choices=())
    elif is_text and isinstance(schema.get("maxLength"), int) and schema["maxLength"] > 2 * AREA:
        made = replace(made, widget="area")
    return made if value is _MISSING else _with(made, value)


def _with(made: Field, value: Any) -> Field:
    """Returns the field with a value: as JSON if the simple field would not return the same."""
    if isinstance(value, str) and value.startswith(HIDDEN):
        return replace(made, widget="secret", choices=(), text=value)
    is_text = isinstance(value, str) and made.kind.rstrip("?") in ("text", "string")
    text = value if is_text else json.dumps(value)
    if not _is_exact(made, text, value):
        return replace(made, kind="json", widget="json", choices=(), text=_indented(value))
    if made.widget == "json":
        return replace(made, text=_indented(value))
    is_long = made.widget == "line" and ("\n" in text or len(text) > AREA)
    return replace(made, widget="area" if is_long else made.widget, text=text)


def _indented(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if all(each.isprintable() or each == "\n" for each in text) else json.dumps(value, indent=2)


def _is_exact(made: Field, text: str, value: Any) -> bool:
    if made.choices and text not in made.choices:
        return False
    if made.widget != "json" and not all(each.isprintable() or each in "\n\t" for each in text):
        return False
    try:
        again = _read(made.kind, text)
    except InvalidJSON:
        return False
    return again is not _MISSING and json.dumps(again, sort_keys=True) == json.dumps(value, sort_keys=True)


def _read(kind: str, text: str, depth: int = DEEPEST) -> Any:
    """Returns the value of a field; _MISSING for one left empty. Raises InvalidJSON."""
    text, base = text.replace("\r\n", "\n"), kind.rstrip("?")
    if text.startswith(HIDDEN):
        return text
    if not text or (base in ("number", "json", "words") and not text.strip()):
        return None if kind.endswith("?") else "" if base == "string" else _MISSING
    if base == "words":
        return re.split(r"[\s,]+", text.strip(", \n\t"))
    if base in ("text", "string"):
        return text
    try:
        value = _parse(text, depth)
    except InvalidJSON:
        if base == "number":
            return text
        raise
    return value if base == "json" or _is_number(value) else text


def _parse(text: str, depth: int = DEEPEST) -> Any:
    return strict_json.parse(text.strip().encode("utf-8", "surrogatepass"), max_depth=depth)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(schema: Mapping[str, Any]) -> tuple[str, Sequence[str], bool]:
    """Returns how a value of a schema is read, the values to choose from, and whether it may be null."""
    among = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(among, list) and len(among) <= MOST:
        return "json", [json.dumps(each) for each in among if each is not None], None in among
    given = schema.get("type")
    types = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
    plain = types - {"null"}
    nullable = "null" in types
    if plain == {"boolean"}:
        return "json", ("true", "false"), nullable
    if plain and plain <= {"integer", "number"}:
        return "number", (), nullable
    return ("text" if plain == {"string"} else "json"), (), nullable


def _help(schema: Mapping[str, Any]) -> str:
    """Returns the schema's constraints of a value, in one line."""
    parts = [str(schema.get("description", ""))[:300]]
    parts += [said.format(schema[name])[:100] for name, said in _LIMITS if name in schema]
    return "; ".join(filter(None, parts))


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a schema with a local `$ref` and an alternative to null resolved; at most four deep."""
    found = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(4):
        reference = found.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
            found = {**(target if isinstance(target, Mapping) else {}), **_without(found, "$ref")}
            continue
        either = found.get("anyOf")
        if not isinstance(either, list):
            break
        real = [each for each in either if isinstance(each, Mapping) and each.get("type") != "null"]
        if len(real) != 1:
            break
        nullable = len(either) > 1
        inner = _resolved(real[0], root)
        found = {**inner, **_without(found, "anyOf")}
        if nullable and isinstance(inner.get("type"), str):
            found["type"] = [inner["type"], "null"]
        elif nullable and isinstance(inner.get("enum"), list):
            found["enum"] = [*inner["enum"], None]
        break
    return found


def _without(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}
