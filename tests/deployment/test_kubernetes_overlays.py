"""The examples beside the single file: overlays as kubectl makes them, and files that are applied by themselves."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from taskqueue.gateway.app import create_app
from taskqueue.shared.config.settings import Settings, load
from taskqueue.shared.redis.client import connect
from tests.deployment.manifests import CLUSTER_WIDE, K8S, NAME, OURS, Manifest, of_kind, workloads, yaml_files
from tests.deployment.test_kubernetes import NEWEST, OLDEST
from tests.monitoring.promql import metrics_of
from tests.support.documents import DOCUMENTS

OVERLAYS = ("ingress", "managed-redis")
KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
FOREIGN = ("keda.sh/", "traefik.io/")
"""Kinds that others bring, for which there are no schemas here."""


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with everything that an overlay makes."""
    return rendered(request.param, tmp_path_factory)


def rendered(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        ["kubectl", "kustomize", K8S / "overlays" / name], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    path = tmp_path_factory.mktemp(name) / "all.yaml"
    path.write_text(done.stdout)
    return path


def keeps_to_the_schemas(manifests: list[Manifest]) -> None:
    for manifest in manifests:
        assert manifest["kind"] in CLUSTER_WIDE or manifest["metadata"]["namespace"] == "task-queue"
        if not manifest["apiVersion"].startswith(FOREIGN):
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(manifest, version, strict=True)


@KUBECTL
def test_an_overlay_keeps_to_the_schemas_and_names_nothing_that_is_not_there(overlay: Path) -> None:
    manifests = list(yaml.safe_load_all(overlay.read_text()))
    keeps_to_the_schemas(manifests)
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    for name, workload in workloads(overlay).items():
        assert ("ServiceAccount", workload.pod["serviceAccountName"]) in there
        assert {("ConfigMap", each) for each in config_maps(workload.pod)} <= there, name


def config_maps(node: Any) -> Iterator[str]:
    """The ConfigMaps that a pod names, except the one that every namespace has."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("configMap", "configMapRef") and value["name"] != "kube-root-ca.crt":
                yield value["name"]
            yield from config_maps(value)
    elif isinstance(node, list):
        for each in node:
            yield from config_maps(each)


@KUBECTL
def test_with_a_managed_redis_nothing_of_our_own_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = rendered("managed-redis", tmp_path_factory)
    assert "redis" not in workloads(path)
    assert "redis" not in of_kind("Service", path)
    assert not of_kind("PriorityClass", path)
    for part in OURS:
        names = [variable["name"] for variable in workloads(path)[part].container["env"]]
        assert "REDIS_URL" in names
        assert "REDIS_PASSWORD" not in names
    [way] = [each for each in of_kind("NetworkPolicy", path).values() if each["metadata"]["name"] == "managed-redis"]
    assert set(way["spec"]["podSelector"]["matchExpressions"][0]["values"]) == set(OURS)


@KUBECTL
def test_from_outside_people_come_by_https_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = rendered("ingress", tmp_path_factory)
    for ingress in of_kind("Ingress", path).values():
        hosts = [rule["host"] for rule in ingress["spec"]["rules"]]
        assert [entry["hosts"] for entry in ingress["spec"]["tls"]] == [hosts]
        for rule in ingress["spec"]["rules"]:
            for way in rule["http"]["paths"]:
                service = of_kind("Service", path)[way["backend"]["service"]["name"]]
                ports = [port["name"] for port in service["spec"]["ports"]]
                assert way["backend"]["service"]["port"]["name"] in ports
    variables = workloads(path)["dashboard"].container["env"]
    assert {"name": "DASHBOARD_HTTPS", "value": "true"} in variables
    told = {each["name"]: each["value"] for each in variables if "value" in each}
    assert load(told).dashboard_https


def test_what_the_outside_sees_of_the_api_asks_for_a_key_or_tells_nothing() -> None:
    manifests = yaml.safe_load_all((K8S / "overlays" / "ingress" / "ingress.yaml").read_text())
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    [rule] = found["Ingress", "gateway"]["spec"]["rules"]
    passed_on = tuple(way["path"] for way in rule["http"]["paths"])
    operations = create_app(Settings(), connect("redis://127.0.0.1:1")).test_client().get("/openapi.json").get_json()
    for path, methods in operations["paths"].items():
        inside = path == "/metrics"
        assert path.startswith(passed_on) != inside, path
        for operation in methods.values():
            assert operation["security"] or path in ("/metrics", "/health/live", "/health/ready")


# --- files that are applied by themselves ---


@pytest.mark.parametrize("path", sorted(yaml_files(K8S / "extras")), ids=lambda path: path.name)
def test_an_extra_keeps_to_the_schemas_and_is_for_pods_that_are_there(path: Path) -> None:
    manifests = list(yaml.safe_load_all(path.read_text()))
    keeps_to_the_schemas(manifests)
    for manifest in manifests:
        if manifest["kind"] == "NetworkPolicy":
            assert manifest["spec"]["podSelector"]["matchLabels"][NAME] in workloads()


def test_webhooks_reach_their_ports_on_the_public_internet_and_nothing_inside() -> None:
    policy = yaml.safe_load((K8S / "extras" / "webhooks.yaml").read_text())
    [rule] = policy["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == set(Settings().webhook_ports)
    blocks = [peer["ipBlock"] for peer in rule["to"]]
    for inside in (
        "10.1.2.3",
        "127.0.0.1",
        "169.254.169.254",
        "172.20.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd00::1",
        "::1",
    ):
        assert not any(_lets_through(block, inside) for block in blocks), inside
    for outside in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"):
        assert any(_lets_through(block, outside) for block in blocks), outside


def _lets_through(block: dict[str, Any], address: str) -> bool:
    """Whether a block of addresses holds this one and does not except it."""
    ip = ipaddress.ip_address(address)
    return ip in ipaddress.ip_network(block["cidr"]) and not any(
        ip in ipaddress.ip_network(each) for each in block.get("except", [])
    )


def test_keda_asks_prometheus_for_waiting_and_running_tasks_and_scales_the_workers() -> None:
    manifests = yaml.safe_load_all((K8S / "extras" / "keda.yaml").read_text())
    scaled = next(each for each in manifests if each["kind"] == "ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == "worker"
    assert 2 <= scaled["minReplicaCount"] < scaled["maxReplicaCount"]
    [trigger] = scaled["triggers"]
    asked = trigger["metadata"]
    port = of_kind("Service")["prometheus"]["spec"]["ports"][0]["port"]
    assert asked["serverAddress"] == f"http://prometheus.task-queue.svc:{port}"
    assert metrics_of(asked["query"]) == {"taskqueue_tasks"}
    assert 'status=~"pending|running"' in asked["query"]
    assert "| `taskqueue_tasks` |" in DOCUMENTS
    assert asked["ignoreNullValues"] == "false", "no answer is not the same as nothing to do"
