"""The examples beside the single file: overlays as kubectl makes them, and files that are applied by themselves."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings, load
from firmq.shared.redis.client import connect
from tests.deployment.manifests import (
    CLUSTER_WIDE,
    K8S,
    LOADER,
    NAME,
    OURS,
    Manifest,
    check_schemas,
    of_kind,
    workloads,
    yaml_files,
)
from tests.monitoring.promql import metrics_of
from tests.support.documents import DOCUMENTS

OVERLAYS = (
    "cluster-ip",
    "external-services",
    "ingress",
    "ingress-monitoring",
    "load-balancer",
    "loki",
    "managed-redis",
    "partitions",
    "sentinel",
)
KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


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
    check_schemas(manifests)


@KUBECTL
def test_an_overlay_keeps_to_the_schemas_and_names_nothing_that_is_not_there(overlay: Path) -> None:
    manifests = list(yaml.load_all(overlay.read_text(), LOADER))
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
def test_behind_sentinel_every_part_has_the_passwords_and_may_reach_both(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = rendered("sentinel", tmp_path_factory)
    for part in OURS:
        names = {variable["name"] for variable in workloads(path)[part].container["env"]}
        assert {"REDIS_URL", "REDIS_PASSWORD", "REDIS_SENTINEL_PASSWORD"} <= names
    [rule] = of_kind("NetworkPolicy", path)["managed-redis"]["spec"]["egress"]
    assert [port["port"] for port in rule["ports"]] == [6379, 26379]


EXTERNAL = {
    "HISTORY_URL": ("history", {"gateway", "housekeeper", "dashboard"}, "postgresql+psycopg://firmq@db/history"),
    "ALERT_WEBHOOK_URL": ("alerts", {"housekeeper"}, "https://chat.example.com/hooks/t0ken"),
    "SMTP_URL": ("alerts", {"housekeeper"}, "smtp://queue:secret@mail.example.com:587"),
    "OIDC_CLIENT_SECRET": ("identity-provider", {"dashboard"}, "secret"),
    "AWS_SECRET_ACCESS_KEY": ("payload-store", set(OURS), "secret"),
}
"""Variables from the secret: the policy of what they are for, the parts that have them, and a value."""


@KUBECTL
def test_each_partition_is_a_server_with_an_address_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    manifests = list(yaml.safe_load_all(rendered("partitions", tmp_path_factory).read_text()))
    [settings] = [each["data"] for each in manifests if each["metadata"]["name"].startswith("settings-")]
    hosts = [urlsplit(address).hostname for address in settings["REDIS_PARTITIONS"].split(",")]
    services = {
        each["metadata"]["name"]: each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]
        for each in manifests
        if each["kind"] == "Service" and each["metadata"]["name"] in hosts
    }
    assert services == {f"redis-{at}": f"redis-{at}" for at in range(3)}
    [server] = [each for each in manifests if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "redis"]
    assert server["spec"]["replicas"] == len(hosts)


@KUBECTL
def test_external_services_are_reached_by_the_parts_that_have_their_secrets_and_no_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = rendered("external-services", tmp_path_factory)
    policies = of_kind("NetworkPolicy", path)
    for name, (policy, parts, _) in EXTERNAL.items():
        assert {part for part in OURS if name in variables_of(path, part)} == parts, name
        selector = policies[policy]["spec"]["podSelector"]
        chosen = selector.get("matchLabels", {}).get(NAME) or selector["matchExpressions"][0]["values"]
        assert {chosen} == parts if isinstance(chosen, str) else set(chosen) == parts, policy
        assert policies[policy]["spec"]["policyTypes"] == ["Egress"]
    [settings] = [each for name, each in of_kind("ConfigMap", path).items() if name.startswith("settings")]
    for part in OURS:
        secrets = {name: value for name, (_, parts, value) in EXTERNAL.items() if part in parts}
        plain = {name: value for name, value in variables_of(path, part).items() if value is not None}
        told = {**settings["data"], **plain, **secrets}
        load(told)
        assert told["PAYLOAD_STORE"].startswith("s3://")


def variables_of(path: Path, part: str) -> dict[str, str | None]:
    """The variables of a part beside those of the ConfigMap; None for what comes from elsewhere."""
    return {each["name"]: each.get("value") for each in workloads(path)[part].container["env"]}


@KUBECTL
def test_a_load_balancer_leads_to_the_gateways_and_lets_in_whom_it_names(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = rendered("load-balancer", tmp_path_factory)
    service = of_kind("Service", path)["gateway-public"]["spec"]
    assert service["selector"] == {NAME: "gateway"}
    assert service["ports"][0]["targetPort"] == "public"
    policy = of_kind("NetworkPolicy", path)["gateway-public"]["spec"]
    let_in = {peer["ipBlock"]["cidr"] for peer in policy["ingress"][0]["from"]}
    assert set(service["loadBalancerSourceRanges"]) <= let_in
    assert policy["ingress"][0]["ports"][0]["port"] == workloads(path)["gateway"].ports["public"]


@KUBECTL
def test_without_load_balancers_services_and_policies_are_those_of_the_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = rendered("cluster-ip", tmp_path_factory)
    for kind in ("Service", "NetworkPolicy"):
        gone = of_kind(kind).keys() - of_kind(kind, path).keys()
        assert gone == {"gateway-load-balancer", "dashboard-load-balancer"}, kind


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


@KUBECTL
def test_prometheus_and_jaeger_are_reached_from_outside_after_a_sign_in_only(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = rendered("ingress-monitoring", tmp_path_factory)
    ingresses, services, parts = of_kind("Ingress", path), of_kind("Service", path), workloads(path)
    policies = [each["spec"] for each in of_kind("NetworkPolicy", path).values()]
    for name, page in (("prometheus", "http"), ("jaeger", "ui")):
        ingress, proxy = ingresses[name]["spec"], f"{name}-sign-in"
        [rule] = ingress["rules"]
        assert ingress["tls"][0]["hosts"] == [rule["host"]]
        [way] = rule["http"]["paths"]
        assert way["backend"]["service"]["name"] == proxy
        assert services[proxy]["spec"]["selector"] == {NAME: proxy}
        [port] = [each["port"] for each in services[name]["spec"]["ports"] if each["name"] == page]
        told = {each["name"]: each.get("value") for each in parts[proxy].container["env"]}
        assert told["OAUTH2_PROXY_UPSTREAMS"] == f"http://{name}:{port}"
        assert told["OAUTH2_PROXY_REDIRECT_URL"] == f"https://{rule['host']}/oauth2/callback"
        assert told["OAUTH2_PROXY_CLIENT_SECRET"] is told["OAUTH2_PROXY_COOKIE_SECRET"] is None, "from the secret"
        let_in = [
            peer
            for spec in policies
            if spec["podSelector"].get("matchLabels") == {NAME: name}
            for rule in spec.get("ingress", [])
            if port in [each["port"] for each in rule["ports"]]
            for peer in rule["from"]
        ]
        reached_by = {peer["podSelector"]["matchLabels"][NAME] for peer in let_in}
        assert reached_by == {proxy} | ({"gateway"} if name == "prometheus" else set())
    [settings] = [each["data"] for key, each in of_kind("ConfigMap", path).items() if key.startswith("oauth2-proxy")]
    assert settings["OAUTH2_PROXY_ALLOWED_GROUPS"], "not everyone with an account"
    for secure in ("COOKIE_SECURE", "COOKIE_HTTPONLY"):
        assert settings[f"OAUTH2_PROXY_{secure}"] == "true"
    assert settings["OAUTH2_PROXY_COOKIE_NAME"].startswith("__Host-")
    assert settings["OAUTH2_PROXY_CODE_CHALLENGE_METHOD"] == "S256"
    assert not [name for name in settings if "SKIP_AUTH" in name or "INSECURE" in name]


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
    manifests = list(yaml.load_all(path.read_text(), LOADER))
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
    assert metrics_of(asked["query"]) == {"firmq_tasks"}
    assert 'status=~"pending|running"' in asked["query"]
    assert "| `firmq_tasks` |" in DOCUMENTS
    assert asked["ignoreNullValues"] == "false", "no answer is not the same as nothing to do"


def test_keda_by_waiting_time_asks_for_metrics_that_are_there_and_replaces_the_other() -> None:
    manifests = list(yaml.safe_load_all((K8S / "extras" / "keda-waiting-time.yaml").read_text()))
    other = list(yaml.safe_load_all((K8S / "extras" / "keda.yaml").read_text()))
    assert [each["metadata"] for each in manifests] == [each["metadata"] for each in other]
    assert manifests[1] == other[1], "the same way to Prometheus"
    triggers = manifests[0]["spec"]["triggers"]
    asked = set().union(*(metrics_of(each["metadata"]["query"]) for each in triggers))
    assert asked == {"firmq_oldest_pending_age_seconds", "firmq_tasks"}
    assert {each["metricType"] for each in triggers} == {"Value", "AverageValue"}
    assert all(f"| `{name}` |" in DOCUMENTS for name in asked)
