"""How a worker divides its claims between its queues."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskqueue.shared.redis.scripts import Argument

NO_BOUNDS: Mapping[str, int] = MappingProxyType({})


class WeightedRoundRobin:
    """Divides claims between queues by weight, so that none starves even when tasks are claimed one by one."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.order = sorted(weights, key=lambda name: -weights[name])
        total = sum(weights.values())
        self.share = {name: weights[name] / total for name in weights}
        self.credit = dict.fromkeys(weights, 0.0)

    def quotas(self, size: int, slots: Mapping[str, int] = NO_BOUNDS) -> list[Argument]:
        """Returns alternating queue and quota; the quotas add up to `size`. The slots of a queue follow its quota."""
        for name, share in self.share.items():
            self.credit[name] += share * size
        quotas = {name: max(0, int(self.credit[name])) for name in self.order}
        left = size - sum(quotas.values())
        for name in sorted(self.order, key=lambda each: quotas[each] - self.credit[each])[: max(0, left)]:
            quotas[name] += 1
        for name, quota in quotas.items():
            self.credit[name] -= quota
        return [
            part
            for name in self.order
            for part in (name, f"{quotas[name]}/{slots[name]}" if name in slots else quotas[name])
        ]
