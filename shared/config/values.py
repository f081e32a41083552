"""Formats of settings' values, in the environment and in YAML."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from shared.domain.lock import OnError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


def _seconds(value: object) -> object:
    """Accepts 30, "30", "30s", "5m", "1h", "1.5d", "250ms"."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise ValueError('must be a number of seconds or a duration such as "30s", "5m", "1h"')
        return float(match[1]) * _UNITS[match[2] or "s"]
    return value


def _names(value: object) -> object:
    """Accepts "a, b" or a list."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _pairs(example: str) -> BeforeValidator:
    """Returns a validator that accepts text such as the example, or a mapping."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.split(":") for part in value.split(",") if part.strip()]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError(f'must look like "{example}"')
        return {name.strip(): said.strip() for name, said in pairs}

    return BeforeValidator(read)


def _mapping(value: object) -> object:
    """Accepts a mapping, or one as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"must be a JSON object: {error}") from None


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=10 * 365 * 86400)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Weights = Annotated[dict[str, Annotated[int, Field(ge=1, le=1000)]], _pairs("critical:6, high:4, normal:3, low:1")]
Executors = Annotated[dict[str, Annotated[int, Field(ge=1, le=256)]], _pairs("low:1, reports:2")]
Port = Annotated[int, Field(ge=0, le=65535)]
Choices = Annotated[dict[str, OnError], _pairs("unlock:run, timeout:skip")]
Mappings = Annotated[dict[str, Any], BeforeValidator(_mapping)]
Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], BeforeValidator(_names)]
Kept = Annotated[int, Field(ge=0)]
