"""What Loki makes of exported lines, by the configuration of the examples: few streams, and fields to filter by."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.collector import Collector
from tests.support.harness import ROOT, System, wait_until

OVERLAY = ROOT / "k8s" / "overlays" / "loki"


def labels() -> set[str]:
    """The attributes of a process that Loki makes labels of."""
    limits: Any = yaml.safe_load((OVERLAY / "loki.yaml").read_text())["limits_config"]
    [rule] = limits["otlp_config"]["resource_attributes"]["attributes_config"]
    assert limits["otlp_config"].keys() == {"resource_attributes"}, "fields of lines are structured metadata"
    assert limits["otlp_config"]["resource_attributes"]["ignore_defaults"]
    assert rule["action"] == "index_label"
    return set(rule["attributes"])


def test_there_is_a_stream_for_each_part_and_not_for_each_process_or_task(system: System) -> None:
    [settings, _] = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())["configMapGenerator"]
    told = dict(each.split("=", 1) for each in settings["literals"])
    collector = Collector()
    try:
        told["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"] = told["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"].replace(
            "http://loki:3100", collector.url
        )
        for _ in range(2):
            system.start_worker(MAX_RETRIES="0", **told)
        system.start_housekeeper(**told)
        tasks = {system.submit("stubborn", '"key"') for _ in range(6)}

        def seen() -> set[str]:
            return {str(line.about["task_id"]) for line in collector.lines if "task_id" in line.about}

        wait_until(lambda: seen() >= tasks and len({line.service for line in collector.lines}) == 2, "lines arrived")
        wait_until(lambda: len({line.instance for line in collector.lines}) >= 3, "of all processes")
        streams = {tuple(sorted((name, line.resource[name]) for name in labels())) for line in collector.lines}
        assert streams == {
            (("service.name", f"firmq-{part}"), ("service.namespace", "firmq")) for part in ("worker", "housekeeper")
        }
    finally:
        collector.stop()
