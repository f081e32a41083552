"""Compiles the JSON Schemas of task types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import jsonschema_rs


class Validator(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterator[Any]: ...


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """Returns a validator, which never fetches a `$ref` and matches patterns in linear time.

    Raises ValueError if the schema is invalid.
    """
    try:
        validator: Validator = jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"this JSON Schema cannot be compiled: {error}") from error
    return validator
