"""The scripts of deliveries."""

from __future__ import annotations

from firmq.shared.domain.limit import read_limit
from firmq.shared.domain.task import Webhook
from firmq.shared.features.webhooks.store import redeliver
from firmq.shared.redis.client import text
from firmq.shared.stores.limits import Limits
from tests.integration.redis.test_full_redis import full
from tests.support.keys import keys
from tests.support.limiting import claim, end
from tests.support.store import Store


def test_deliveries_that_wait_for_each_other_take_turns_by_their_receivers(store: Store, limits: Limits) -> None:
    limits.put("type:firmq.webhook", read_limit({"concurrency": 1}))
    hooks = [Webhook(url=f"https://{host}/hooks", events=("cancelled",)) for host in ("silent.example",) * 9]
    hooks.append(Webhook(url="https://Shop.example:8443/hooks?a=b", events=("cancelled",)))
    for hook in hooks:
        [task] = store.submit(webhook=hook)
        store.queues.cancel(task, "no longer wanted")
    started = []
    for _ in hooks:
        started += claim(store)
        end(store, started[-1])
    assert len(started) == len(hooks)
    assert text(store.redis.hget(keys.rq_job(started[2]), "receiver")) == "shop.example:8443"


def test_a_delivery_is_repeated_on_a_full_redis(store: Store) -> None:
    [task] = store.submit(webhook=Webhook(url="https://hooks.example/x"))
    assert store.claim() == [task]
    store.report(task, "completed")
    delivery = f"{task}-hook-1"
    assert store.claim(token="t2") == [delivery]
    store.report(delivery, "completed", "t2")
    with full(store.redis):
        assert redeliver(store.scripts, delivery) == f"{task}-hook-2"
