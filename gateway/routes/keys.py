"""Endpoint that lists API keys. Keys are created and revoked in settings (`firmq keys`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field
from redis import Redis

from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.schemas.values import NextCursor, View
from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.redis.client import keys_of, translated
from firmq.shared.stores.api_keys import ApiKey, Keyring, Scope


class KeyView(View):
    """An API key, without its secret."""

    id: str
    client: str = Field(description="Name of the client, as in the log and the audit record.")
    scopes: list[Scope]
    rate: str | None = Field(description="Requests per time, such as 100/s; null: unlimited.")
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="Accurate to a minute; null: not used within a year.")


class KeyList(View):
    """API keys by client."""

    items: list[KeyView]
    next_cursor: NextCursor = None


class KeyRoutes:
    """The API keys of this gateway's settings, with their last use from Redis."""

    def __init__(self, keyring: Keyring, redis: Redis) -> None:
        self.keyring = keyring
        self.redis = redis

    @endpoint(
        "GET",
        "/admin/keys",
        Across.KEYS,
        tag="keys",
        scope=Scope.ADMIN,
        answers={200: Answer(description="All keys.", model=KeyList)},
    )
    def all(self) -> Reply:
        """Lists API keys with client, scopes, rate, expiry and last use."""
        found = self.keyring.all()
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in found:
                pipeline.hget(keys_of(self.redis).api_key(each.id), "used")
            used = pipeline.execute(raise_on_error=False)
        return Reply(content=KeyList(items=[_view(key, at) for key, at in zip(found, used, strict=True)]))


def _view(key: ApiKey, used: Any) -> KeyView:
    last_used = whole_or_none(used)
    return KeyView(
        id=key.id,
        client=key.client,
        scopes=list(key.scopes),
        rate=key.rate.text if key.rate else None,
        expires_at=key.expires_at,
        last_used_at=None if last_used is None else instant(last_used),
    )
