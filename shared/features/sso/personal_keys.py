"""Personal API keys: users of the dashboard create their own keys for the gateway.

A key is `fqp_ID_SECRET`, which gateways without this feature do not know. Redis holds a hash of its 256 random bits,
its owner, its scopes and its end. Write access to Redis can therefore create such a key, unlike one of `API_KEYS`:
gateways accept personal keys only with PERSONAL_KEYS, and for the scopes named there.
An owner is an account (`dashboard/auth/users.py`), never a display name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from firmq.shared.domain.clock import instant, instant_us, to_us
from firmq.shared.domain.decode import UNREADABLE, whole_or_none
from firmq.shared.errors import FirmqError
from firmq.shared.features.sso.keys import SsoKeys
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.api_keys import ApiKey, Scope

MOST = 1_000
"""Maximum personal keys of a system."""
_KEY = re.compile(r"fqp_([a-z0-9]{12})_[0-9a-f]{64}")
_NO_HASH = bytes(32)


class TooManyKeys(FirmqError):
    """The user, or the system, has as many personal keys as allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalKey:
    """A key without its secret; `name` is the display name of its owner when it was created."""

    id: str
    owner: str
    name: str
    label: str
    scopes: tuple[Scope, ...]
    digest: bytes
    created_at: datetime
    expires_at: datetime

    @property
    def client(self) -> str:
        """Returns the client of requests with this key: no client of API_KEYS has such a name, and no other owner."""
        return f"user:{self.name[:60]}~{self.owner.rpartition(':')[2][:8]}"

    def as_api_key(self, allowed: Iterable[Scope]) -> ApiKey:
        """Returns the key with its allowed scopes only."""
        kept = tuple(each for each in self.scopes if each in set(allowed))
        return ApiKey(
            id=self.id, client=self.client, scopes=kept, digest=self.digest, expires_at=self.expires_at, personal=True
        )


def is_personal(given: str) -> bool:
    """Returns whether a text has the form of a personal key."""
    return _KEY.fullmatch(given) is not None


class PersonalKeys:
    """The personal keys of a system. Every method raises StoreUnavailable."""

    def __init__(self, scripts: Scripts, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.now = now
        self.scripts = scripts
        self.redis = scripts.redis
        self.name = SsoKeys.beside(scripts.keys).PERSONAL_KEYS

    def create(
        self, owner: str, name: str, label: str, scopes: Iterable[Scope], lifetime: timedelta, most: int
    ) -> tuple[PersonalKey, str]:
        """Returns a new key, and the text that its owner sends. Raises TooManyKeys for more than `most` of an owner."""
        key_id = "".join(secrets.choice("abcdefghijkmnpqrstuvwxyz23456789") for _ in range(12))
        sent = f"fqp_{key_id}_{secrets.token_hex(32)}"
        with translated():
            now = self.scripts.now_us()
            key = PersonalKey(
                id=key_id,
                owner=owner,
                name=name,
                label=label,
                scopes=tuple(scopes),
                digest=hashlib.sha256(sent.encode()).digest(),
                created_at=instant(now),
                expires_at=instant(now + to_us(lifetime)),
            )
            answer = text(self.scripts.call("personal_key_add", key_id, _stored(key), owner, most, MOST))
        if answer == "own":
            raise TooManyKeys(f"{name} has {most} keys, which is the maximum: revoke one first")
        if answer == "all":
            raise TooManyKeys(f"this system has {MOST:,} personal keys, which is the maximum: an admin can revoke some")
        return key, sent

    def find(self, given: str) -> PersonalKey | None:
        """Returns the key of a text, if it is valid; one command on Redis, and none for other kinds of keys."""
        match = _KEY.fullmatch(given)
        if match is None:
            return None
        with translated(), self.scripts.quarantining({self.name: "hash"}):
            key = _read(match[1], self.redis.hget(self.name, match[1]))
        right = hmac.compare_digest(hashlib.sha256(given.encode()).digest(), key.digest if key else _NO_HASH)
        return key if key and right and self.now() < key.expires_at else None

    def all(self) -> list[PersonalKey]:
        """Returns the keys that have not expired, by name, then by creation."""
        with translated(), self.scripts.quarantining({self.name: "hash"}):
            found = [_read(text(name), value) for name, value in self.redis.hgetall(self.name).items()]
        valid = [key for key in found if key and self.now() < key.expires_at]
        return sorted(valid, key=lambda key: (key.name, key.created_at))

    def last_used(self, found: Iterable[PersonalKey]) -> list[datetime | None]:
        """Returns when each key was last used, to a minute; None for never."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for key in found:
                pipeline.hget(self.scripts.keys.api_key(key.id), "used")
            used = [whole_or_none(each) for each in pipeline.execute(raise_on_error=False)]
        return [None if each is None else instant(each) for each in used]

    def revoke(self, key_id: str) -> bool:
        """Removes a key; returns whether it existed."""
        with translated(), self.scripts.quarantining({self.name: "hash"}):
            self.redis.delete(self.scripts.keys.api_key(key_id))
            return bool(self.redis.hdel(self.name, key_id))


def _stored(key: PersonalKey) -> str:
    about = asdict(key) | {"digest": key.digest.hex()}
    about |= {name: instant_us(about[name]) for name in ("created_at", "expires_at")}
    return json.dumps(about)


def _read(key_id: str, stored: Any) -> PersonalKey | None:
    """Returns a stored key; None if it is missing or unreadable, and thus not a key."""
    try:
        about = json.loads(stored or "")
        return PersonalKey(
            id=key_id,
            owner=str(about["owner"]),
            name=str(about["name"]),
            label=str(about["label"]),
            scopes=tuple(Scope(each) for each in about["scopes"]),
            digest=bytes.fromhex(about["digest"]),
            created_at=instant(int(about["created_at"])),
            expires_at=instant(int(about["expires_at"])),
        )
    except UNREADABLE:
        return None
