"""The addresses of several Redis servers, and the partitions that they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlencode

from pydantic import AfterValidator, BeforeValidator

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.redis_address import completed, read_address, split_options, without_password
from firmq.shared.config.stores import Stores
from firmq.shared.features.partitions.preference import preferred

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings

MOST = 1024
"""Maximum number of partitions."""


class Partitions(Stores):
    """The stores of a system with several: each has all that belongs to its tasks."""

    noun = "partition"

    def of_name(self, name: str) -> Settings:
        return self[preferred(name, self)[0]]

    def page(self, number: int, path: str) -> str:
        return f"/partitions/{number}?{urlencode({'to': path}, safe='/')}"


def _addresses(value: object) -> object:
    """Accepts addresses in a list, or with commas between them; commas within an address have no scheme after them.

    An empty item is a removed partition.
    """
    if not isinstance(value, str):
        return value
    return [part.strip() for part in re.split(r",(?=\s*(?:[a-z+]+://|,|$))", value)]


def _valid(addresses: tuple[str, ...]) -> tuple[str, ...]:
    if len(addresses) > MOST:
        raise ValueError(f"must be at most {MOST} addresses")
    if addresses and not any(addresses):
        raise ValueError("must name at least one server")
    for number, url in enumerate(addresses, start=1):
        try:
            if url:
                read_address(url)
        except ValueError as error:
            raise ValueError(f"address {number} {error}") from None
    return addresses


class PartitionSettings(Group):
    """The addresses of several Redis servers."""

    ADDRESSES: ClassVar[tuple[str, ...]] = ("redis_partitions",)

    redis_partitions: Annotated[tuple[str, ...], BeforeValidator(_addresses), AfterValidator(_valid)] = at(
        "redis.partitions",
        (),
        "Addresses of several Redis servers, each as in REDIS_URL, instead of a single one. The place of an address is "
        "the number of its partition and never changes: a new one is added at the end, and one that was removed leaves "
        "an empty item. To extend a system with a single REDIS_URL, list that address first.",
    )

    def check(self) -> None:
        """Raises ValueError for an address that is given twice."""
        given: Any = self
        if given.redis_url and self.redis_partitions:
            raise ValueError("REDIS_URL and REDIS_PARTITIONS are both set: name all servers in REDIS_PARTITIONS")
        stores = [without_password(each.store_url) for each in given.stores.values()]
        if double := next((each for number, each in enumerate(stores) if each in stores[:number]), None):
            raise ValueError(
                f"REDIS_PARTITIONS: {double} is named twice: a partition needs a server or key_prefix of its own"
            )

    def spread(self) -> Stores | None:
        """Returns the partitions that REDIS_PARTITIONS or the cluster of REDIS_URL has, with a share of the bounds."""
        given: Any = self
        addresses = self.redis_partitions or of_cluster(given.redis_url, given.key_prefix)
        if not addresses:
            return None
        most = given.max_queue_length
        own = {
            **dict(self),
            "redis_partitions": (),
            "max_queue_length": most and max(1, most // sum(map(bool, addresses))),
        }
        return Partitions(
            (number, given.model_construct(**{**own, "redis_url": completed(url, store=str(number))}))
            for number, url in enumerate(addresses)
            if url
        )


def of_cluster(url: str, key_prefix: str) -> list[str]:
    """Returns the addresses of the partitions of a cluster; none for another address, such as one of these.

    The keys of each begin with `{fqN}`, so that they are in one slot and scripts can use all of them.
    """
    bare, options = split_options(url)
    if "+cluster:" not in bare or "store" in options:
        return []
    many, outer = options.pop("partitions", ""), options.pop("key_prefix", key_prefix)
    if not many.isdecimal() or not 1 <= int(many) <= MOST:
        raise ValueError(
            f"REDIS_URL: needs ?partitions= with a number from 1 to {MOST}, such as 24: it can grow, not shrink"
        )
    own = (f"{outer}:{{fq{number}}}" if outer else f"{{fq{number}}}" for number in range(int(many)))
    return [f"{bare.rstrip('/')}?{urlencode({**options, 'key_prefix': prefix})}" for prefix in own]
