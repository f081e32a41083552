"""The Redis stores of a system: one, unless a feature spreads the system over several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings


class Stores(dict[int, "Settings"]):
    """The settings for each store by its number, which the ids made in the store end with. All parts use all stores."""

    noun = "store"
    """What a store is called, in messages and as the label of metrics."""

    def of_name(self, name: str) -> Settings:
        """Returns the store of what has a name, such as a lock."""
        return next(iter(self.values()))

    def label(self, number: int) -> str:
        """Returns the name of a store for people; "" for the only one."""
        return f"{self.noun} {number}" if len(self) > 1 else ""

    def page(self, number: int, path: str) -> str:
        """Returns the path that leads to a page of the dashboard about a store."""
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One of the stores of a system that has an address for each."""

    stores: Stores
    number: int

    @property
    def label(self) -> str:
        """Returns the name of the store for people."""
        return f"{self.stores.noun} {self.number}"

    @property
    def is_first(self) -> bool:
        """Returns whether it is the first store, where that runs which one of them has to run for all."""
        return self.number == min(self.stores)

    def page(self, path: str) -> str:
        """Returns the path that leads to a page of the dashboard about the store."""
        return self.stores.page(self.number, path)
