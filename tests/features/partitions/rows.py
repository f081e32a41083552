"""What partitions add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

from typing import Any

from firmq.gateway.features.partitions.feature import create_router
from firmq.gateway.features.partitions.router import Router
from firmq.shared.config.settings import Settings


def _gateway(url: str, about: dict[str, Any]) -> Router:
    addresses = [f"{url.removesuffix('/0')}/{number}" for number in range(3)]
    router = create_router(Settings.model_validate({"redis_partitions": addresses, **about}))
    router.members.watch = lambda: None  # type: ignore[method-assign]  # all are there
    return router


GATEWAYS = (("partitions", _gateway),)
FEW = (("draining_set", ("draining",)),)
