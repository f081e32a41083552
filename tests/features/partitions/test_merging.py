"""Documents of several partitions, put together."""

from __future__ import annotations

from typing import Any

from firmq.gateway.features.partitions import merging


def test_health_is_that_of_the_best_and_says_what_is_wrong_with_the_others() -> None:
    well = {"status": "ok", "workers": 2, "queues": {"normal": 3}, "notes": [], "redis": {"reachable": True}}
    away: Any = {"status": "unavailable", "workers": None, "queues": None, "notes": ["no answer"], "redis": {}}
    found = merging.health({0: away, 1: well, 2: well})
    assert (found["status"], found["workers"], found["queues"]) == ("degraded", 2, {"normal": 6})
    assert found["notes"] == ["partition 0: no answer"]
    assert merging.health({0: away})["status"] == "unavailable"


def test_values_of_a_breakdown_are_added_up() -> None:
    def part(**counts: int) -> Any:
        values = [{"value": value, "tasks": tasks} for value, tasks in counts.items()]
        one = {"field": "customer", "distinct": len(counts), "often": 0, "missing": 1, "values": values}
        return {"tasks": sum(counts.values()), "complete": True, "tags": {**one, "field": None}, "fields": [one]}

    found = merging.breakdown({0: part(ann=2, bob=1), 1: part(ann=3)})
    [field] = found["fields"]
    assert field["values"] == [{"value": "ann", "tasks": 5}, {"value": "bob", "tasks": 1}]
    assert (found["tasks"], field["missing"], field["distinct"]) == (6, 2, 2)
