"""Writes the JSON Schemas of task types, and compiles them.

Data is checked where it is submitted as pydantic checks it in the handler: formats such as dates by pydantic itself,
and rules beyond JSON Schema, such as the decimal places of a number in text, by a keyword of our own.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaValidator, to_jsonable_python

CHECK = "x-pydantic"
"""The keyword: the type as pydantic describes it, with its bounds as text."""
MESSAGE = "x-message"
"""Messages for rejected values where the schema's own words do not name the required change."""
UNCHECKED = "x-unchecked-format"
"""Marks a format that the handler's author only describes: pydantic does not check it."""
UNCHECKED_PATTERN = "x-unchecked-pattern"
"""Holds a regular expression in place of `pattern` or `patternProperties` that gateways would match otherwise."""
_BOUNDED: Mapping[str, Any] = {
    **{kind.__name__.lower(): kind for kind in (Decimal, date, datetime, time, timedelta)},
    "url": str,
    "multi-host-url": str,
}
_BOUNDS = {"ge", "gt", "le", "lt", "multiple_of"}
_CONSTRAINTS = _BOUNDS | {
    *("max_digits", "decimal_places", "allow_inf_nan", "tz_constraint", "now_op", "now_utc_offset"),
    *("max_length", "allowed_schemes", "host_required"),
}


class Validator(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterator[Any]: ...


class SchemaWriter(GenerateJsonSchema):
    """Adds the keyword where a type has checks beyond JSON Schema.

    Leaves formats out below a validator of the handler's own that runs before: it may take other text, such as dates in
    another order.
    """

    _below_own = 0

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        kind = schema["type"]
        is_own = kind in ("function-before", "function-wrap", "function-plain") and not str(
            getattr(schema["function"]["function"], "__module__", "")
        ).startswith("pydantic")
        self._below_own += is_own
        written = super().generate_inner(schema)
        self._below_own -= is_own
        for name in {"pattern", "patternProperties"} & written.keys():
            if not _is_portable(schema, name, written[name]):
                written = {UNCHECKED_PATTERN if each == name else each: value for each, value in written.items()}
        if "format" in written and _describes_format(schema.get("metadata") or {}):
            written = {**written, UNCHECKED: True}
        if self._below_own:
            return {name: value for name, value in written.items() if name not in ("format", CHECK)}
        if kind == "json":
            return {**written, "format": "json"}
        if kind == "dict" and (key := schema.get("keys_schema", {}).get("type")) in ("int", "float", "bool"):
            return {"propertyNames": {"format": key}, **written}
        return written if "url" in kind else self._with_check(schema, written)

    def url_schema(self, schema: Any) -> dict[str, Any]:
        return self._with_check(schema, super().url_schema(schema))

    def multi_host_url_schema(self, schema: Any) -> dict[str, Any]:
        return self._with_check(schema, super().multi_host_url_schema(schema))

    @staticmethod
    def _with_check(schema: Any, written: dict[str, Any]) -> dict[str, Any]:
        kind, constraints = schema["type"], {name: schema[name] for name in schema.keys() & _CONSTRAINTS}
        if kind in _BOUNDED and (constraints or kind == "decimal"):
            written = {**written, CHECK: {"type": kind, **to_jsonable_python(constraints)}}
        return written


def _is_portable(schema: Any, name: str, written: Any) -> bool:
    """Returns whether patterns match in linear time as in Python: they have no look-around and no flags."""
    pattern = schema.get("pattern") or schema.get("keys_schema", {}).get("pattern")
    try:
        compile_schema({name: written if name == "pattern" else dict.fromkeys(written, True)})
    except ValueError:
        return False
    return bool(getattr(pattern, "flags", re.UNICODE) == re.UNICODE)


def _describes_format(metadata: Mapping[str, Any]) -> bool:
    """Returns whether a handler's author has written the format, by `json_schema_extra` or `WithJsonSchema`."""
    extra, updates = metadata.get("pydantic_js_extra") or {}, metadata.get("pydantic_js_updates") or {}
    owners = [getattr(each, "__self__", None) for each in metadata.get("pydantic_js_annotation_functions") or ()]
    written = any(isinstance(each, pydantic.WithJsonSchema) for each in owners)
    return written or callable(extra) or "format" in extra or "format" in updates


def _without_unchecked(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_unchecked(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = ("format", UNCHECKED) if schema.get(UNCHECKED) is True else ()
    return {name: _without_unchecked(each) for name, each in schema.items() if name not in dropped}


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """Returns a validator, which never fetches a `$ref` and matches patterns in linear time.

    Raises ValueError if the schema is invalid.
    """
    import jsonschema_rs  # executors do not check

    try:
        validator: Validator = jsonschema_rs.validator_for(
            _without_unchecked(dict(schema)),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            validate_formats=True,
            formats=dict(_formats()),
            keywords={CHECK: _Check},
        )
    except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"this JSON Schema cannot be compiled: {error}") from error
    return validator


class _Check:
    """Validates the keyword."""

    def __init__(self, parent: object, value: Mapping[str, Any], path: object) -> None:
        try:
            read: Any = TypeAdapter(_BOUNDED[value["type"]]).validate_python
            core: Any = {name: read(given) if name in _BOUNDS else given for name, given in value.items()}
            self.validator = SchemaValidator(core)
        except Exception as error:  # a later version of pydantic may have written it
            raise ValueError(f"{CHECK} cannot be read: {error}") from error

    def validate(self, instance: object) -> None:
        try:
            self.validator.validate_json(json.dumps(instance))
        except ValidationError as error:
            raise ValueError(error.errors(include_url=False, include_input=False)[0]["msg"]) from None


@cache
def _formats() -> Mapping[str, Callable[[str], bool]]:
    """Returns the check of each format; loads the modules that only validation needs."""
    addresses = [getattr(ipaddress, f"IPv{n}{kind}") for n in (4, 6) for kind in ("Address", "Network", "Interface")]
    own = [
        "AnyUrl",
        "Base64Bytes",
        "Base64UrlBytes",
        *(f"IPvAny{kind}" for kind in ("Address", "Network", "Interface")),
    ]
    own += [f"UUID{version}" for version in (1, 3, 4, 5, 6, 7, 8)]
    named: dict[str, Any] = {
        "decimal": Decimal,
        "fraction": Fraction,
        "json": pydantic.Json,
        "int": int,
        "float": float,
        "bool": bool,
    }
    named["email"] = pydantic.constr(pattern="^.*[^@]@[^@]+$")  # regardless of the package that pydantic needs for it
    for kind in (date, datetime, time, timedelta, UUID, ZoneInfo, re.Pattern, *addresses):
        named[TypeAdapter(kind).json_schema()["format"]] = kind
    for name in own:
        named[TypeAdapter(getattr(pydantic, name)).json_schema()["format"]] = getattr(pydantic, name)
    return {name: _check_of(kind) for name, kind in named.items()}


def _check_of(kind: Any) -> Callable[[str], bool]:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def fits(text: str) -> bool:
        try:
            adapter.validate_json(json.dumps(text))
        except ValidationError:
            return False
        return True

    return fits
