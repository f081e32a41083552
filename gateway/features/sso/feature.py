"""The lookup of personal API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firmq.gateway.feature import Feature
from firmq.shared.features.sso.personal_keys import PersonalKeys, is_personal
from firmq.shared.features.sso.settings import SsoSettings
from firmq.shared.stores.api_keys import Scope

if TYPE_CHECKING:
    from firmq.gateway.circuit_breaker import CircuitBreaker
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.api_keys import ApiKey


class PersonalKeyLookup:
    """Looks each key up in Redis for each request, so that a revoked one is refused at once."""

    def __init__(self, scopes: frozenset[Scope]) -> None:
        self.scopes = scopes

    @classmethod
    def of(cls, settings: Settings) -> PersonalKeyLookup | None:
        """Returns the lookup; None without PERSONAL_KEYS."""
        scopes = frozenset(map(Scope, SsoSettings.of(settings).personal_keys))
        return cls(scopes) if scopes else None

    def find(self, text: str, scripts: Scripts, circuit_breaker: CircuitBreaker) -> ApiKey | None:
        """Returns the key with the scopes that this gateway allows; one command on Redis, none for other keys."""
        if not is_personal(text):
            return None
        with circuit_breaker.guarding():
            found = PersonalKeys(scripts).find(text)
        return found.as_api_key(self.scopes) if found else None


FEATURE = Feature(keys=PersonalKeyLookup.of)
