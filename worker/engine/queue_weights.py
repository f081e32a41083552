"""How a worker divides its claims between its queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument

NO_BOUNDS: Mapping[str, int] = MappingProxyType({})


class Strict:
    """Takes from a queue only when those before it are empty."""

    def __init__(self) -> None:
        self.order: Sequence[str] = ()

    def set(self, weights: Mapping[str, int]) -> None:
        """Sets the queues in their order; their weights do not matter."""
        self.order = tuple(weights)

    def quotas(self, size: int, slots: Mapping[str, int] = NO_BOUNDS) -> list[Argument]:
        """Returns the same as `WeightedRoundRobin`; the quota of each queue is the whole claim."""
        return _arguments(self.order, dict.fromkeys(self.order, size), slots)


class WeightedRoundRobin:
    """Divides claims between queues by weight, so that none starves even when tasks are claimed one by one."""

    def __init__(self) -> None:
        self.order: Sequence[str] = ()
        self.share: Mapping[str, float] = {}
        self.credit: dict[str, float] = {}

    def set(self, weights: Mapping[str, int]) -> None:
        """Sets the queues in the order in which claims name them; those that stay keep their credit."""
        total = sum(weights.values())
        self.order = tuple(weights)
        self.share = {name: weight / total for name, weight in weights.items()}
        self.credit = {name: self.credit.get(name, 0.0) for name in weights}

    def quotas(self, size: int, slots: Mapping[str, int] = NO_BOUNDS) -> list[Argument]:
        """Returns each queue with its quota and its slots, "" if unbounded. The quotas add up to `size`."""
        for name, share in self.share.items():
            self.credit[name] += share * size
        quotas = {name: max(0, int(self.credit[name])) for name in self.order}
        left = size - sum(quotas.values())
        for name in sorted(self.order, key=lambda each: quotas[each] - self.credit[each])[: max(0, left)]:
            quotas[name] += 1
        for name, quota in quotas.items():
            self.credit[name] -= quota
        return _arguments(self.order, quotas, slots)


def _arguments(order: Iterable[str], quotas: Mapping[str, int], slots: Mapping[str, int]) -> list[Argument]:
    return [part for name in order for part in (name, quotas[name], slots.get(name, ""))]
