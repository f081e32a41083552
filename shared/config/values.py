"""Formats of settings' values, in the environment and in YAML."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from firmq.shared.config.redis_address import check_key_prefix, read_address
from firmq.shared.domain import strict_json
from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.lock import OnError
from firmq.shared.domain.queue_selection import QUEUE_NAME, QUEUE_PATTERN
from firmq.shared.domain.retry import MOST_PAUSES
from firmq.shared.domain.url import split_url
from firmq.shared.errors import InvalidJSON

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAY_RUN_UNLOCKED = frozenset({"unlock", "timeout", "schedules"})
"""Jobs that remove nothing and may run twice; the others are skipped when their lock is unavailable."""
_DATABASE = re.compile(r"[\w+]+:(//([^:/@]*(:[^@]*)?@)?(\[[^/?@]+\]|[^/:@?]*)(:\d*)?)?(/.*|\?.*)?", re.DOTALL)
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
        return strict_json.parse(value.encode(), max_depth=64) if isinstance(value, str) else value
    except InvalidJSON as error:
        raise ValueError(f"must be a JSON object: {error}") from None


def valid(check: Callable[[Any], object]) -> AfterValidator:
    """Returns a validator that raises the errors of a check."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


def _readable(path: str) -> None:
    if path and not os.access(path, os.R_OK):
        raise ValueError("the file does not exist or this process may not read it")


def _host(host: str) -> None:
    if not re.fullmatch(r"[^\s/@#?:\[\]]*|\[?[\da-fA-F]*:[\da-fA-F.]*:[\da-fA-F:.]*(%\w+)?\]?", host):
        raise ValueError("must be a host name or an IP address alone, without a scheme, a user or a port")


def _database(url: str) -> None:
    # What SQLAlchemy takes for the host would be quoted by the database driver that does not find it.
    if url and not _DATABASE.fullmatch(url):
        raise ValueError("must be like postgresql+psycopg://app@db:5432/shop, with %40 for an @ in a password")


def _priorities(names: Iterable[str]) -> None:
    for name in names:
        if not re.fullmatch(r"[a-z0-9_-]{1,32}", name) or name == "default":
            raise ValueError(
                f"{name!r} is not a valid priority: use 1 to 32 characters of a-z, 0-9, _ and -, not `default`"
            )


def _selected(value: object) -> object:
    """Accepts "gpu-*:5, default" (also with =), a list of the same, or a mapping of names and patterns to weights."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple):
        return value
    parts = [str(each).replace("=", ":", 1).partition(":") for each in entries if str(each).strip()]
    return {name.strip(): weight.strip() if colon else None for name, colon, weight in parts}


def _queue_patterns(names: Iterable[str]) -> None:
    for name in names:
        if not QUEUE_PATTERN.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a queue: use 1 to 64 characters of A-Z a-z 0-9 . _ - or *")


def _queue_names(names: Iterable[str]) -> None:
    for name in names:
        if not QUEUE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a queue: use 1 to 64 characters of A-Z a-z 0-9 . _ -")


def _harmless(choices: Mapping[str, OnError]) -> None:
    for name, choice in choices.items():
        if choice is OnError.RUN and name not in _MAY_RUN_UNLOCKED:
            raise ValueError(f"{name} can only skip: only {', '.join(sorted(_MAY_RUN_UNLOCKED))} can run")


def signing_key(secret: str) -> bytes:
    """Decodes a secret in the Standard Webhooks format, or takes it as it is.

    Raises ValueError, whose text never contains the secret.
    """
    encoded = secret.removeprefix("whsec_")
    try:
        key = secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)
    except ValueError:
        raise ValueError("a secret that begins with whsec_ must continue in base64") from None
    if len(key) < 24:
        raise ValueError("a secret must have at least 24 bytes: openssl rand -base64 32 makes one")
    return key


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=10 * 365 * 86400)]
Pauses = Annotated[tuple[Seconds, ...], BeforeValidator(_names), Field(max_length=MOST_PAUSES)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
ScopeNames = Annotated[tuple[Literal["submit", "read", "operate", "admin"], ...], BeforeValidator(_names)]
Weights = Annotated[
    dict[str, Annotated[int, Field(ge=1, le=1000)]],
    _pairs("critical:6, high:4, normal:3, low:1"),
    valid(_priorities),
]
SelectedQueues = Annotated[
    dict[str, Annotated[int, Field(ge=1, le=1000)] | None], BeforeValidator(_selected), valid(_queue_patterns)
]
Executors = Annotated[dict[str, Annotated[int, Field(ge=1, le=256)]], _pairs("low:1, reports:2"), valid(_queue_names)]
RolesByClaim = Annotated[
    dict[str, Literal["viewer", "operator", "admin"]], _pairs("queue-admins:admin, queue-team:operator")
]
WebUrl = Annotated[str, valid(split_url)]
WebAddresses = Annotated[Names, valid(lambda all_: [split_url(re.sub("^(.*//)?", "//", each)) for each in all_])]
Host = Annotated[str, valid(_host)]
Port = Annotated[int, Field(ge=0, le=65535)]
Choices = Annotated[dict[str, OnError], _pairs("unlock:run, timeout:skip"), valid(_harmless)]
Mappings = Annotated[dict[str, Any], BeforeValidator(_mapping)]
Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], BeforeValidator(_names)]
Kept = Annotated[int, Field(ge=0)]
RedisUrl = Annotated[str, valid(lambda url: url and read_address(url))]
DatabaseUrl = Annotated[str, valid(_database)]
KeyPrefix = Annotated[str, valid(check_key_prefix)]
ReadableFile = Annotated[str, valid(_readable)]
Secrets = Annotated[Names, valid(lambda secrets: [signing_key(each) for each in secrets])]
HostsAndNetworks = Annotated[Names, valid(lambda entries: EgressPolicy.of((), (), entries))]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
]
LogFormat = Literal["auto", "json", "text"]
