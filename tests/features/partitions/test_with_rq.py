"""RQ's keys are in the first partition."""

from __future__ import annotations

import pytest

from firmq.shared.config.settings import load
from firmq.worker.features.rq.feature import rq_key_prefix


@pytest.mark.parametrize(
    ("environment", "prefix"),
    [
        ({}, ""),
        ({"KEY_PREFIX": "shop"}, "shop"),
        ({"REDIS_URL": "redis://a/0?key_prefix=shop"}, "shop"),
        ({"REDIS_PARTITIONS": "redis://a?key_prefix=eu,redis://b", "KEY_PREFIX": "shop"}, "eu"),
        ({"REDIS_PARTITIONS": ",redis://b", "KEY_PREFIX": "shop"}, "shop"),
        ({"REDIS_URL": "redis+cluster://a,b?partitions=2"}, "{fq0}"),
        ({"REDIS_URL": "redis+cluster://a,b?partitions=2", "KEY_PREFIX": "shop"}, "shop:{fq0}"),
    ],
)
def test_the_keys_of_rq_have_the_prefix_of_the_first_partition(environment: dict[str, str], prefix: str) -> None:
    assert rq_key_prefix(load(environment)) == prefix
