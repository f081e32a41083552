"""Makes data that fits a JSON schema, for a first command to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_FORMAT = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "time": "12:00:00",
    "duration": "PT1H",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
_TEXT = "some text"


def sample(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """Returns a value of this schema; required members only. Patterns are not taken into account."""
    definitions = definitions or schema.get("$defs", {})
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    if "$ref" in schema:
        return sample(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return sample(schema[name][0], definitions)
    return _of_type(schema, definitions)


def _of_type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "string")
    if kind == "object":
        members = schema.get("properties", {})
        return {name: sample(members.get(name, {}), definitions) for name in schema.get("required", ())}
    if kind == "array":
        return [sample(schema.get("items", {}), definitions)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    if kind == "string":
        return _BY_FORMAT.get(schema.get("format", ""), _TEXT)
    return {"boolean": True}.get(kind)
