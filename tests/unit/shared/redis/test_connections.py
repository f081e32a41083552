"""What sentinels publish, and what is made of it."""

from __future__ import annotations

import pytest

from firmq.shared.redis.connections import Sentinels
from firmq.shared.redis.refusing import Refusing

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6380)
REPLACING = "slave 10.0.0.2:6380 10.0.0.2 6380 @ main 10.0.0.1 6379"
REPLACED = "main 10.0.0.1 6379 10.0.0.2 6380"


def following(service: str = "main") -> Sentinels:
    sentinels = Sentinels(service, [])
    sentinels.master = OLD
    return sentinels


def test_a_master_is_left_when_a_replica_is_told_to_take_its_place() -> None:
    sentinels = following()
    sentinels.on_event("+failover-state-wait-promotion", REPLACING)
    assert sentinels.master is None
    assert sentinels.is_replacing(*OLD)
    assert not sentinels.is_replacing(*NEW)


def test_the_new_master_is_taken_when_it_is_named() -> None:
    sentinels = following()
    sentinels.on_event("+failover-state-wait-promotion", REPLACING)
    sentinels.on_event("+switch-master", REPLACED)
    assert sentinels.master == NEW
    assert not sentinels.is_replacing(*OLD)


def test_what_is_said_of_another_service_or_makes_no_sense_changes_nothing() -> None:
    sentinels = following("other")
    for event, said in (("+failover-state-wait-promotion", REPLACING), ("+switch-master", REPLACED)):
        for words in (said, "", "other", f"{said} more"):
            sentinels.on_event(event, words)
    assert sentinels.master == OLD
    assert not sentinels.is_replacing(*OLD)


def test_a_connection_that_looked_before_the_change_does_not_bring_the_old_master_back() -> None:
    sentinels = following()
    sentinels.on_event("+failover-state-wait-promotion", REPLACING)
    with pytest.raises(Refusing):
        sentinels.settle(OLD, known=OLD)
    assert sentinels.master is None
    sentinels.on_event("+switch-master", REPLACED)
    with pytest.raises(Refusing):
        sentinels.settle(OLD, known=OLD)
    assert sentinels.master == NEW


def test_that_a_master_is_replaced_is_old_news_once_there_is_a_new_one() -> None:
    sentinels = following()
    sentinels.on_event("+switch-master", REPLACED)
    sentinels.on_event("+failover-state-wait-promotion", REPLACING)
    assert sentinels.master == NEW
    sentinels.settle(NEW, known=OLD)
    assert sentinels.master == NEW
