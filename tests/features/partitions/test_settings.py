"""Addresses of several servers, and of a cluster."""

from __future__ import annotations

import pytest

from firmq.shared.config.foreign_names import hints
from firmq.shared.config.settings import Settings, load
from firmq.shared.errors import SettingsError


def addresses(settings: Settings) -> dict[int, str]:
    return {number: own.store_url for number, own in settings.stores.items()}


def test_a_single_server_has_no_partitions() -> None:
    settings = load({"REDIS_URL": "redis://a:1"})
    assert settings.stores == {0: settings}
    assert settings.has_one_address
    assert settings.store_url == "redis://a:1"


def test_the_place_of_an_address_is_its_number_and_a_removed_one_leaves_a_gap() -> None:
    settings = load({"REDIS_PARTITIONS": "redis://a:1,, redis+sentinel://s1:1,s2:2/main, rediss://c/?key_prefix=x"})
    assert not settings.has_one_address
    assert addresses(settings) == {
        0: "redis://a:1?store=0",
        2: "redis+sentinel://s1:1,s2:2/main?store=2",
        3: "rediss://c/?key_prefix=x&store=3",
    }


def test_what_applies_to_all_is_added_to_each() -> None:
    settings = load({"REDIS_PARTITIONS": "redis://a,redis://:own@b", "REDIS_PASSWORD": "common", "KEY_PREFIX": "shop"})
    assert addresses(settings) == {
        0: "redis://:common@a?store=0&key_prefix=shop",
        1: "redis://:own@b?store=1&key_prefix=shop",
    }


def test_the_bound_of_queues_is_divided() -> None:
    settings = load({"REDIS_PARTITIONS": "redis://a,redis://b,redis://c", "MAX_QUEUE_LENGTH": "100"})
    assert {own.max_queue_length for own in settings.stores.values()} == {33}


def test_a_cluster_has_a_prefix_in_one_slot_for_each() -> None:
    settings = load({"REDIS_URL": "rediss+cluster://u:p@a:1,b:2?partitions=2"})
    assert addresses(settings) == {
        number: f"rediss+cluster://u:p@a:1,b:2?key_prefix=%7Bfq{number}%7D&store={number}" for number in range(2)
    }
    assert all(own.has_one_address for own in settings.stores.values())


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"REDIS_URL": "redis://a", "REDIS_PARTITIONS": "redis://b"}, "are both set"),
        ({"REDIS_PARTITIONS": "redis://b,redis://b"}, "named twice"),
        ({"REDIS_PARTITIONS": ","}, "at least one server"),
        ({"REDIS_PARTITIONS": "redis://a,http://b"}, "address 2 must start with"),
        ({"REDIS_URL": "redis+cluster://a,b"}, "needs ?partitions="),
        ({"REDIS_URL": "redis+cluster://a,b?partitions=0"}, "needs ?partitions="),
        ({"REDIS_URL": "redis+cluster://a,b/main?partitions=3"}, "must look like"),
    ],
)
def test_a_mistake_is_named_and_no_password_is_shown(environment: dict[str, str], reason: str) -> None:
    secret = {name: value.replace("://", "://:sesame@", 1) for name, value in environment.items()}
    with pytest.raises(SettingsError) as caught:
        load(secret)
    assert reason in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_a_host_beside_a_list_of_addresses_is_reported() -> None:
    assert list(dict(hints({"REDIS_PARTITIONS": "redis://one,", "REDIS_HOST": "two"}))) == ["REDIS_HOST"]
