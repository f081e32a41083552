"""API keys of the gateway: its permitted clients and their scopes.

A key is `fq_ID_SECRET`; a line for each names its client and permissions:

    ID:CLIENT:SCOPES:HASH[:rate=100/s][:expires=2027-01-31]

**Why in the settings and in a file, not in Redis.** Every component reaches Redis, even handlers, and so an attacker
with a hole in one of them. Write access to Redis must not grant access here, so permissions are kept where only the
gateway's operator writes: `API_KEYS`, or a file (a mounted secret) that is read again when it changes. Redis holds only
data whose loss or forgery does no harm: when a key was last used, and the tokens of its rate. Personal keys are the
exception, which an operator chooses (the feature `sso`).

**Why one SHA-256.** The secret has 160 random bits, which cannot be guessed at any speed; a deliberately slow hash
protects passwords, and would cost each request some 50 ms.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from firmq.shared.errors import SettingsError

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds until a change of the file is noticed, at most."""
_KEY = re.compile(r"fq_([a-z0-9]{4,16})_[0-9a-f]{40}")
_ID = re.compile(r"[a-z0-9]{4,16}")
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_NO_HASH = bytes(32)


class Scope(StrEnum):
    """The permissions of a key."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


_MAY_TOO = {Scope.OPERATE: {Scope.READ}, Scope.ADMIN: set(Scope)}
"""Scopes that a scope includes: operators need to read; submitters need not see the tasks of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A number of requests in a number of seconds, possibly all at once."""

    count: float
    per: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret."""

    id: str
    client: str
    scopes: tuple[Scope, ...]
    digest: bytes
    rate: Rate | None = None
    expires_at: datetime | None = None
    personal: bool = False
    """Whether a user of the dashboard made it, and sees no more with it than there."""

    def may(self, scope: Scope) -> bool:
        return any(scope is each or scope in _MAY_TOO.get(each, ()) for each in self.scopes)

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    @property
    def line(self) -> str:
        """Returns the line that `read_key` parses."""
        parts = [self.id, self.client, "+".join(self.scopes), self.digest.hex()]
        if self.rate:
            parts.append(f"rate={self.rate.text}")
        if self.expires_at:
            parts.append(f"expires={_encode_moment(self.expires_at)}")
        return ":".join(parts)


def new_key(
    client: str, scopes: Iterable[Scope], rate: str | None = None, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Returns a new key, and the text that its owner sends, which cannot be recovered later. Raises ValueError."""
    key_id = "".join(secrets.choice("abcdefghijkmnpqrstuvwxyz23456789") for _ in range(8))
    text = f"fq_{key_id}_{secrets.token_hex(20)}"
    key = ApiKey(
        id=key_id,
        client=client,
        scopes=tuple(dict.fromkeys(scopes)),
        digest=hashlib.sha256(text.encode()).digest(),
        rate=_rate(rate) if rate else None,
        expires_at=expires_at,
    )
    return read_key(key.line), text


def read_key(line: str) -> ApiKey:
    """Returns the key of a line. Raises ValueError, without the hash."""
    key_id, _, rest = line.partition(":")
    client, _, rest = rest.partition(":")
    scopes, _, rest = rest.partition(":")
    digest, *options = rest.split(":")
    if not _ID.fullmatch(key_id) or not _HASH.fullmatch(digest):
        raise ValueError("is not a key: create one with `firmq keys create CLIENT SCOPE`")
    if not _CLIENT.fullmatch(client):
        raise ValueError(f"{client[:40]!r} is not a client name: use letters, digits, . _ and -, at most 64")
    known = _options(options)
    return ApiKey(
        id=key_id,
        client=client,
        scopes=tuple(_scope(each) for each in scopes.split("+")),
        digest=bytes.fromhex(digest),
        rate=_rate(known["rate"]) if "rate" in known else None,
        expires_at=read_moment(known["expires"]) if "expires" in known else None,
    )


def read_keys(lines: Iterable[str]) -> dict[str, ApiKey]:
    """Returns keys by id. Raises SettingsError with all mistakes, a line each."""
    found: dict[str, ApiKey] = {}
    mistakes = []
    for number, line in enumerate(lines, start=1):
        try:
            key = read_key(line)
        except ValueError as error:
            mistakes.append(f"key {number}: {error}")
            continue
        if key.id in found:
            mistakes.append(f"key {number}: {key.id} appears twice: remove one")
        found[key.id] = key
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return found


def read_moment(text: str) -> datetime:
    """Returns the instant of a date or time; UTC unless stated otherwise. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expires must be like 2027-01-31 or 20270131T120000Z, got {text[:40]!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def key_lines(text: str) -> list[str]:
    """Returns the lines of a file that hold keys."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


class Keyring:
    """The keys of the settings and of the file."""

    def __init__(
        self,
        lines: Iterable[str] = (),
        path: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        others: bool = False,
    ) -> None:
        """Raises SettingsError with all mistakes. `others`: features have keys beside these."""
        self.others = others
        self.path = path
        self.clock = clock
        self.now = now
        self.given = _named("API_KEYS", lambda: read_keys(lines))
        self.state = _state(path)
        self.keys = _named("API_KEYS_FILE", self._read)
        self.look_at = clock() + LOOK_SECONDS
        if path and not self.keys:
            raise SettingsError(f"API_KEYS_FILE: {path} holds no key: create one, `firmq keys create CLIENT SCOPE`")

    @property
    def required(self) -> bool:
        """Returns whether callers need a key. A file that becomes empty denies all access, instead of granting it."""
        return bool(self.path or self.given or self.others)

    def find(self, text: str) -> ApiKey | None:
        """Returns the key of a text, if valid and not expired. Takes the same time whichever part is wrong."""
        self._look_again()
        key = self._right(text)
        return key if key and not key.expired(self.now()) else None

    def is_over(self, text: str) -> bool:
        """Returns whether it is a key that has expired: for the metrics, never for the sender."""
        key = self._right(text)
        return key is not None and key.expired(self.now())

    def _right(self, text: str) -> ApiKey | None:
        match = _KEY.fullmatch(text)
        key = self.keys.get(match[1]) if match else None
        digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        right = hmac.compare_digest(digest, key.digest if key else _NO_HASH)
        return key if right else None

    def all(self) -> list[ApiKey]:
        """Returns all keys by client, then by id."""
        self._look_again()
        return sorted(self.keys.values(), key=lambda key: (key.client, key.id))

    def _look_again(self) -> None:
        if not self.path or self.clock() < self.look_at:
            return
        self.look_at = self.clock() + LOOK_SECONDS
        state = _state(self.path)
        if state == self.state:
            return
        self.state = state
        try:
            self.keys = self._read()
        except SettingsError as error:
            # The file may be incomplete or missing while it is being replaced: the previous keys stay valid.
            log.error("API keys file cannot be read, previous keys stay valid", extra={"reason": str(error)})
        else:
            log.info("API keys reloaded", extra={"keys": len(self.keys)})

    def _read(self) -> dict[str, ApiKey]:
        if not self.path:
            return self.given
        try:
            text = Path(self.path).read_text("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SettingsError(f"{self.path} cannot be read: {reason}") from None
        found = read_keys(key_lines(text))
        if twice := found.keys() & self.given.keys():
            raise SettingsError(f"{', '.join(sorted(twice))} is also in API_KEYS: remove it from one of them")
        return {**self.given, **found}


def _state(path: str) -> tuple[int, ...]:
    """Returns a value that changes with the file, also when it is replaced behind a link, as in Kubernetes."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _named(name: str, read: Callable[[], dict[str, ApiKey]]) -> dict[str, ApiKey]:
    try:
        return read()
    except SettingsError as error:
        raise SettingsError("\n".join(f"{name}: {line}" for line in str(error).splitlines())) from None


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError:
        known = ", ".join(Scope)
        raise ValueError(f"{name[:40]!r} is not a scope: use {known}, several joined by +") from None


def _options(parts: Iterable[str]) -> Mapping[str, str]:
    options = dict(part.partition("=")[::2] for part in parts)
    for name in options:
        if name not in ("rate", "expires"):
            raise ValueError(f"{name[:40]!r} is unknown: use rate=100/s or expires=2027-01-31")
    return options


def _rate(text: str) -> Rate:
    # Imported here, because it imports the Redis client, which the command `firmq` starts without.
    from firmq.shared.domain.limit import read_rate

    count, per = read_rate(text)
    if count < 1:
        raise ValueError(f"rate must allow at least one request at a time, got {text[:40]!r}")
    return Rate(count=count, per=per, text=text)


def _encode_moment(moment: datetime) -> str:
    """Returns the instant without colons, which separate the fields of a line."""
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y-%m-%d" if utc == utc.replace(hour=0, minute=0, second=0) else "%Y%m%dT%H%M%SZ")


def key_use(scripts: Scripts, key_id: str, per_second: float, burst: float, wanted: int) -> tuple[int, float]:
    """Records the use of an API key, and takes tokens of its rate; returns how many, and seconds until the next."""
    granted, wait_us = scripts.call("key_use", key_id, f"{per_second:.9f}", f"{burst:.6f}", wanted)
    return int(granted), int(wait_us) / 1_000_000
