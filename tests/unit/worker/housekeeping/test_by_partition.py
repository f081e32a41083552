"""The metrics of a housekeeper that looks after several partitions."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from firmq.worker.housekeeping.metrics import ByPartition


def test_each_sample_says_whose_it_is_and_each_family_is_there_once() -> None:
    registries = {number: CollectorRegistry() for number in (0, 2)}
    for number, registry in registries.items():
        Gauge("pending", "Pending tasks.", ["queue"], registry=registry).labels("normal").set(number + 5)
        Counter("runs", "Runs.", registry=registry).inc()
    together = CollectorRegistry()
    together.register(ByPartition(registries))
    text = generate_latest(together).decode()
    assert text.count("# TYPE pending gauge") == 1
    assert 'pending{partition="0",queue="normal"} 5.0' in text
    assert 'pending{partition="2",queue="normal"} 7.0' in text
    assert 'runs_total{partition="2"} 1.0' in text
