"""The contribution of a feature to the gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from firmq.gateway.circuit_breaker import CircuitBreaker
    from firmq.gateway.metrics import Metrics
    from firmq.gateway.routes.events import EventRoutes
    from firmq.shared.config.settings import Settings
    from firmq.shared.domain.redaction import Redaction
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.api_keys import ApiKey
    from firmq.shared.stores.dead_letters import DeadLetters
    from firmq.shared.stores.queues import Queues
    from firmq.shared.stores.tasks import Records
    from firmq.shared.submission.task_factory import TaskFactory
    from firmq.shared.submission.type_cache import TypeCache


@dataclass(frozen=True, slots=True)
class Services:
    """The dependencies of the routes of a feature."""

    settings: Settings
    scripts: Scripts
    records: Records
    """With those that features keep beside Redis."""
    queues: Queues
    dead_letters: DeadLetters
    type_cache: TypeCache
    task_factory: TaskFactory
    metrics: Metrics
    redaction: Redaction
    events: EventRoutes
    version: str
    """Of this product."""


class OtherKeys(Protocol):
    """API keys beside those of the settings."""

    def find(self, text: str, scripts: Scripts, circuit_breaker: CircuitBreaker) -> ApiKey | None:
        """Returns the key of a text, or None. Raises StoreUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The contribution of a feature to the gateway."""

    routes: Callable[[Services], Sequence[object]] = lambda services: ()
    """Returns objects whose methods are declared with `endpoint`."""
    keys: Callable[[Settings], OtherKeys | None] = lambda settings: None
    """Returns its API keys, or None if these settings allow none."""
    serve: Callable[[Settings, Metrics, int], Any] | None = None
    """Returns the WSGI app of a system with several stores; the number is how many requests may wait for results."""


def features() -> list[Feature]:
    """Returns the contributions of all features to the gateway."""
    return features_of("gateway")
