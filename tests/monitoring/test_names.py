"""Every query of rules and panels asks for what running parts really show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.exercise import exercise
from tests.acceptance.running import product
from tests.monitoring.promql import labels_of, metrics_of
from tests.monitoring.promtool import FOLDER

DASHBOARD = FOLDER / "grafana" / "dashboards" / "firmq.json"
OWN = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate", "severity"}}
"""What Prometheus adds by itself."""
RARE = {"firmq_tasks_without_worker": {"type"}, "firmq_tasks_without_worker_age_seconds": {"type"}}
"""What a running system shows only while tasks wait for a worker that has their type (test_type_versions.py)."""

Names = dict[str, set[str]]


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((FOLDER / name).read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where each query is, and the query."""
    for rule in (*rules("recording.yml"), *rules("alerts.yml")):
        yield rule.get("record") or rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in json.loads(DASHBOARD.read_text())["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def shown(page: str) -> Names:
    """Each metric of a page with its labels."""
    found: Names = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """What the four parts show one by one, as Prometheus sees them."""
    folder = tmp_path_factory.mktemp("names")
    with product(folder, HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true") as running:
        exercise(running.api)
        httpx.get(f"http://127.0.0.1:{running.ports['DASHBOARD_PORT']}/").raise_for_status()
        pages = [
            httpx.get(f"http://127.0.0.1:{running.ports[port]}/metrics").text
            for port in ("GATEWAY_PORT", "WORKER_METRICS_PORT", "HOUSEKEEPER_METRICS_PORT", "DASHBOARD_PORT")
        ]
    found: Names = {}
    for page in pages:
        for name, labels in shown(page).items():
            found.setdefault(name, set()).update(labels)
    return found


@pytest.fixture(scope="module")
def known(exported: Names) -> Names:
    """These, and what recording rules make of them."""
    names = {name: labels | {"job", "instance"} for name, labels in (RARE | exported).items()} | OWN
    for rule in rules("recording.yml"):
        inputs = set().union(*(names[metric] for metric in metrics_of(rule["expr"])))
        names[rule["record"]] = labels_of(rule["expr"]) & inputs or inputs & {"type"}
    return names


def test_every_query_asks_for_metrics_and_labels_that_are_shown(known: Names) -> None:
    asked = list(queries())
    assert len(asked) > 100
    for where, query in asked:
        metrics = metrics_of(query)
        assert metrics, (where, query)
        assert metrics <= known.keys(), (where, metrics - known.keys())
        labels = set().union(*(known[metric] for metric in metrics))
        assert labels_of(query) <= labels, (where, labels_of(query) - labels)


def test_every_legend_names_labels_that_its_query_keeps(known: Names) -> None:
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"]
            kept = labels_of(query) or set().union(*(known[metric] for metric in metrics_of(query)))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, panel["title"]


def test_no_label_has_a_name_that_prometheus_gives_itself(exported: Names) -> None:
    for name, labels in exported.items():
        assert not labels & {"job", "instance"}, name


def test_what_the_parts_show_about_the_product_is_seen_somewhere(exported: Names) -> None:
    """A metric that nobody looks at is in the way of those that somebody does; twins are seen once."""
    asked = {metric for _, query in queries() for metric in metrics_of(query)}
    twins = {"pending_tasks_total", "retry_tasks_total", "tasks_in_dlq_total", "active_workers_total"}
    seen = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in asked | twins}
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in exported if not name.endswith("_created")}
    ours = {name for name in families if name.startswith(("task", "worker_errors", "pending", "retry", "active"))}
    assert sorted(ours - seen - RARELY) == []


RARELY = {
    "firmq_history_failures",
    "firmq_history_lost",
    "firmq_history_removed",
    "firmq_history_stored",
    "firmq_history_unreadable",
    "firmq_history_waiting",
    "firmq_housekeeper_elections",
    "firmq_housekeeper_info",
    "firmq_housekeeper_leader_term",
    "firmq_housekeeping_skips",
    "firmq_lock_hold_seconds",
    "firmq_lock_stops",
    "firmq_lock_wait_seconds",
    "firmq_schedule_lateness_seconds",
    "firmq_schedules",
    "firmq_tenant_turn_age_seconds",
}
"""For those who look for something in particular."""


# --- the dashboard as Grafana reads it ---


def test_panels_have_names_and_numbers_of_their_own_and_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    every = dashboard["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every if panel["type"] != "row"}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_what_grafana_is_given_fits_together() -> None:
    [source] = yaml.safe_load((FOLDER / "grafana/datasources/prometheus.yml").read_text())["datasources"]
    dashboard = json.loads(DASHBOARD.read_text())
    [variable] = dashboard["templating"]["list"]
    assert variable["current"]["value"] == source["uid"]
    assert {panel["datasource"]["uid"] for panel in panels()} == {f"${{{variable['name']}}}"}
