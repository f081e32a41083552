"""Kubernetes, Compose, the image and the code say the same."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.deployment import compose_file
from tests.deployment.manifests import K8S, NAME, OURS, of_kind, workloads
from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("name", sorted(workloads()))
def test_kubernetes_runs_what_compose_runs(name: str) -> None:
    here, there = workloads()[name].container, compose_file.services()[name]
    if name in OURS:
        assert here["command"] == there["command"]
    else:
        assert here["image"] == there["image"]


@pytest.mark.parametrize("name", OURS)
def test_a_part_is_told_the_same_unless_there_is_a_reason(name: str) -> None:
    reasons = {
        "REDIS_PASSWORD",  # each has its own
        "ALLOW_ANONYMOUS",  # compose publishes on loopback; here are keys and users
        "DASHBOARD_USERS",
        "DRAIN_GRACE",  # a pod may take longer to go
    }
    here, there = workloads()[name].environment(), compose_file.services()[name]["environment"]
    same = (here.keys() & there.keys()) - reasons
    assert {each: here[each] for each in same} == {each: there[each] for each in same}
    assert same >= {"REDIS_HOST", "JAEGER_HOST"}


@pytest.mark.parametrize("name", OURS)
def test_the_image_has_the_user_and_the_ports_of_the_pods(name: str) -> None:
    context = workloads()[name].pod["securityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in DOCKERFILE
    [exposed] = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert {str(port) for port in workloads()[name].ports.values()} <= set(exposed.split())


def test_jaeger_listens_where_its_service_and_its_probes_say() -> None:
    told = yaml.safe_load((K8S / "base" / "jaeger" / "jaeger.yaml").read_text())
    ports = workloads()["jaeger"].ports
    assert told["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == f"0.0.0.0:{ports['otlp-http']}"
    assert told["extensions"]["healthcheckv2"]["http"]["endpoint"] == f"0.0.0.0:{ports['health']}"
    assert set(told["service"]["extensions"]) == set(told["extensions"])
    assert workloads()["worker"].environment()["JAEGER_PORT"] == str(ports["otlp-http"])


def test_prometheus_scrapes_the_ports_that_the_policies_open() -> None:
    text = (K8S / "monitoring" / "prometheus.yml").read_text()
    for name in OURS:
        assert name in text
    [policy] = [each for each in of_kind("NetworkPolicy").values() if each["metadata"]["name"] == "prometheus"]
    asked = [peer["podSelector"]["matchLabels"][NAME] for way in policy["spec"]["egress"] for peer in way.get("to", [])]
    assert sorted(asked) == sorted(OURS)


def test_the_readme_repeats_the_drain_and_the_ports_of_the_manifests() -> None:
    readme = DOCUMENTS
    shown = workloads()["dashboard"].environment()["GATEWAY_PORT"]
    assert f"kubectl port-forward -n task-queue svc/gateway {shown}:5000" in readme
    drain = workloads()["worker"].environment()["DRAIN_GRACE"].removesuffix("s")
    assert re.search(rf"{drain} s\s\(`DRAIN_GRACE`\)", readme)
    for command in (
        "kubectl apply -f k8s/deployment.yaml",
        "kubectl scale deployment worker -n task-queue --replicas=5",
        "kubectl port-forward -n task-queue svc/gateway 8000:5000",
        "kubectl port-forward -n task-queue svc/dashboard 5001:5001",
        "kubectl port-forward -n task-queue svc/prometheus 9090:9090",
        "kubectl port-forward -n task-queue svc/jaeger 16686:16686",
    ):
        assert command in readme
