"""The metrics of a housekeeper that looks after several stores."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from firmq.worker.housekeeping.metrics import ByStore


def test_each_sample_says_whose_it_is_and_each_family_is_there_once() -> None:
    registries = {number: CollectorRegistry() for number in (0, 2)}
    for number, registry in registries.items():
        Gauge("pending", "Pending tasks.", ["queue"], registry=registry).labels("normal").set(number + 5)
        Counter("runs", "Runs.", registry=registry).inc()
    together = CollectorRegistry()
    together.register(ByStore("shard", registries))
    text = generate_latest(together).decode()
    assert text.count("# TYPE pending gauge") == 1
    assert 'pending{queue="normal",shard="0"} 5.0' in text
    assert 'pending{queue="normal",shard="2"} 7.0' in text
    assert 'runs_total{shard="2"} 1.0' in text
