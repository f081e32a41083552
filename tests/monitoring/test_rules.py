"""The configuration of Prometheus, its rules and its alerts, held against promtool and against each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from firmq.shared.conditions.conditions import NEARLY_FULL, conditions
from firmq.shared.config.settings import Settings
from tests.monitoring.promtool import FOLDER, promtool
from tests.support.harness import ROOT

ALERTS = FOLDER / "alerts.yml"
RUNBOOK = ROOT / "docs" / "operate" / "runbook.md"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def alerts() -> list[dict[str, Any]]:
    return [rule for group in read(ALERTS)["groups"] for rule in group["rules"]]


# --- promtool ---


def test_promtool_takes_the_configuration_for_compose() -> None:
    assert "2 rule files found" in promtool("check", "config", "prometheus.yml")


def test_promtool_takes_the_rules() -> None:
    assert promtool("check", "rules", FOLDER / "recording.yml", ALERTS).count("SUCCESS") == 2


def test_promtool_sees_each_alert_fire_and_stay_quiet() -> None:
    assert "SUCCESS" in promtool("test", "rules", FOLDER / "alerts_test.yml")


# --- Kubernetes: not every promtool is built with its discovery, so pods are given as it would describe them ---


def pod(name: str, part: str, port: str, number: int, phase: str = "Running") -> dict[str, Any]:
    prefix = "__meta_kubernetes_pod"
    labels = {
        f"{prefix}_name": name,
        f"{prefix}_label_app_kubernetes_io_name": part,
        f"{prefix}_container_port_name": port,
        f"{prefix}_phase": phase,
        f"{prefix}_node_name": "node-1",
    }
    return {"targets": [f"10.0.0.{number}:{number}"], "labels": labels}


def test_in_kubernetes_every_part_is_a_target_under_its_own_name(tmp_path: Path) -> None:
    config = read(FOLDER / "prometheus.yml")
    [job] = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"own_namespace": True}}]
    job["static_configs"] = [
        pod("gateway-1", "gateway", "http", 1),
        pod("worker-1", "worker", "metrics", 2),
        pod("housekeeper-1", "housekeeper", "metrics", 3),
        pod("dashboard-1", "dashboard", "http", 4),
        pod("redis-0", "redis", "redis", 5),
        pod("worker-0", "worker", "metrics", 6, phase="Failed"),
    ]
    config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", tmp_path / "prometheus.yml")
    answer = promtool("check", "service-discovery", tmp_path / "prometheus.yml", "task-queue", "--timeout=2s")
    kept = [each["labels"] for each in json.loads(answer) if each["labels"]]
    assert {(each["job"], each["instance"]) for each in kept} == {
        (part, f"{part}-1") for part in ("gateway", "worker", "housekeeper", "dashboard")
    }


def test_both_configurations_have_the_same_jobs_and_rules() -> None:
    compose, kubernetes = read(ROOT / "prometheus.yml"), read(FOLDER / "prometheus.yml")
    named = {each["job_name"] for each in compose["scrape_configs"]}
    assert named == {"gateway", "worker", "housekeeper", "dashboard", "relay", "prometheus"}
    assert {Path(name).name for name in compose["rule_files"]} == set(kubernetes["rule_files"])


# --- what an alert consists of ---


def test_every_alert_says_how_bad_it_is_what_it_is_about_and_where_to_read_on() -> None:
    headings = {heading.lower() for heading in re.findall(r"^## (Firmq\w+)$", RUNBOOK.read_text(), re.MULTILINE)}
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning"), alert
        said = alert["annotations"]
        assert 10 < len(said["summary"]) < 100, said
        assert re.fullmatch(r"[A-Z{].*\.", said["description"]), said
        path, _, section = said["runbook_url"].partition("#")
        assert ROOT / path == RUNBOOK
        assert section == alert["alert"].lower()
        assert section in headings
    assert headings == {name.lower() for name in conditions().keys() | {alert["alert"] for alert in alerts()}}


def test_alerts_of_a_name_have_one_threshold_and_one_level() -> None:
    both = [(alert, conditions()[alert["alert"]]) for alert in alerts() if alert["alert"] in conditions()]
    rated = {(alert["alert"], alert["labels"]["severity"]) for alert, _ in both}
    for name in ("FirmqNoWorkerForType", "FirmqOldestTaskTooOld", "FirmqDueTasksNotMoved", "FirmqScheduleMissed",
                 "FirmqHistoryLate", "FirmqRedisMemoryNearlyFull"):  # fmt: skip
        limit = conditions()[name].threshold(Settings())
        assert any(f"> {limit:g}" in alert["expr"] for alert, each in both if each.name == name), name
    assert any(f"> {NEARLY_FULL:g}" in alert["expr"] for alert, _ in both)
    assert {(each.name, {"danger": "critical"}.get(each.level, each.level)) for _, each in both} <= rated


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    seen: dict[str, set[bool]] = {}
    for case in read(FOLDER / "alerts_test.yml")["tests"]:
        for expected in case["alert_rule_test"]:
            seen.setdefault(expected["alertname"], set()).add(bool(expected["exp_alerts"]))
    assert seen == {alert["alert"]: {True, False} for alert in alerts()}


def test_every_section_of_the_runbook_says_what_it_means_and_what_to_do() -> None:
    for section in RUNBOOK.read_text().split("\n## Firmq")[1:]:
        assert re.search(r"^(Critical|Warning)\. ", section, re.MULTILINE), section
        assert "- **Do:**" in section, section
