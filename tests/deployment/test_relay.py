"""The relay of an outbox: the Compose profile and the overlay of Kubernetes agree with the code and with each other."""

from __future__ import annotations

import re
from functools import cache

import pytest
import yaml

from firmq.shared.config.settings import Settings
from tests.deployment import compose_file, test_kubernetes
from tests.deployment.manifests import CLUSTER_WIDE, K8S, NAME, Manifest, Workload, check_schemas
from tests.deployment.rendering import render
from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT

GATEWAY = "http://gateway:5000"
DATABASE = "postgresql+psycopg://app@db/shop"
PORT = Settings().outbox_metrics_port


@cache
def overlay() -> dict[tuple[str, str], Manifest]:
    """Everything that the overlay makes."""
    return {(each["kind"], each["metadata"]["name"]): each for each in render(K8S / "overlays" / "outbox")}


def pod() -> Workload:
    return Workload("relay", overlay()["Deployment", "relay"])


def ports_of(policy: str, direction: str) -> set[tuple[str, int]]:
    """The pods, or networks, and ports that a policy opens."""
    spec = overlay()["NetworkPolicy", policy]["spec"]
    return {
        (str(peer.get("podSelector", {}).get("matchLabels", {}).get(NAME, "network")), port["port"])
        for rule in spec[direction]
        for peer in rule["to" if direction == "egress" else "from"]
        for port in rule["ports"]
    }


# --- Kubernetes ---


def test_the_overlay_keeps_to_the_schemas() -> None:
    for manifest in overlay().values():
        assert manifest["kind"] in CLUSTER_WIDE or manifest["metadata"]["namespace"] == "task-queue"
    check_schemas(overlay().values())


def test_the_overlay_adds_a_relay_and_changes_nothing_else() -> None:
    production = {(each["kind"], each["metadata"]["name"]): each for each in render(K8S / "overlays" / "production")}
    assert overlay().items() >= production.items()
    added = overlay().keys() - production.keys()
    policies = {("NetworkPolicy", name) for name in ("relay", "relay-to-gateway", "prometheus-to-relay")}
    assert added == {("Deployment", "relay"), ("ServiceAccount", "relay")} | policies


@pytest.mark.parametrize(
    "rule",
    [
        test_kubernetes.test_every_container_has_probes_that_wait_long_enough,
        test_kubernetes.test_every_container_says_what_it_needs_and_what_it_may_take,
        test_kubernetes.test_every_pod_is_restricted,
        test_kubernetes.test_services_do_not_set_settings,
        test_kubernetes.test_selectors_name_their_own_pods_only,
        test_kubernetes.test_images_are_named_with_their_version,
    ],
)
def test_its_pod_keeps_the_rules_of_all_pods(rule: object) -> None:
    assert callable(rule)
    rule(pod())
    assert overlay()["ServiceAccount", pod().pod["serviceAccountName"]]["automountServiceAccountToken"] is False


def test_it_reaches_the_gateway_and_the_database_and_prometheus_reaches_it() -> None:
    assert ports_of("relay", "egress") == {("gateway", 5000), ("network", 5432)}
    assert ports_of("relay-to-gateway", "ingress") == {("relay", 5000)}
    assert ports_of("relay", "ingress") == {("prometheus", PORT)}
    assert ports_of("prometheus-to-relay", "egress") == {("relay", PORT)}
    assert "relay;metrics" in (K8S / "monitoring" / "prometheus.yml").read_text()
    assert pod().ports == {"metrics": PORT}


def test_its_secrets_are_created_by_the_command_of_the_readme() -> None:
    keys = {each["valueFrom"]["secretKeyRef"]["key"] for each in pod().container["env"] if "secretKeyRef" in str(each)}
    assert keys == {"relay-api-key", "outbox-database"}
    text = (K8S / "README.md").read_text()
    assert all(f"--from-literal={key}=" in text for key in keys)


# --- Compose ---


def test_compose_starts_it_in_its_profile_only_and_without_redis() -> None:
    relay = compose_file.services()["relay"]
    assert relay["profiles"] == ["outbox"]
    assert relay["command"] == pod().container["command"] == ["firmq", "outbox"]
    assert relay["networks"].keys() == {"default"}
    assert relay["depends_on"].keys() == {"gateway"}
    assert "REDIS_PASSWORD" not in relay["environment"]
    assert relay["healthcheck"]["test"][-1] == relay["environment"]["OUTBOX_METRICS_PORT"] == str(PORT)
    assert relay["environment"]["FIRMQ_URL"] == GATEWAY
    assert "docker compose --profile outbox up" in DOCUMENTS


def test_its_database_is_chosen_in_the_env_file() -> None:
    chosen = {**compose_file.PASSWORDS, "OUTBOX_DATABASE": DATABASE, "FIRMQ_API_KEY": "a-key"}
    told = yaml.safe_load(compose_file.read(environment=chosen).stdout)["services"]
    assert told["relay"]["environment"].items() >= {"OUTBOX_DATABASE": DATABASE, "FIRMQ_API_KEY": "a-key"}.items()
    assert [name for name, each in told.items() if "OUTBOX_DATABASE" in each.get("environment", {})] == ["relay"]


def test_prometheus_of_compose_finds_it() -> None:
    jobs = yaml.safe_load((ROOT / "prometheus.yml").read_text())["scrape_configs"]
    [job] = [each for each in jobs if each["job_name"] == "relay"]
    assert [(each["names"], each["port"]) for each in job["dns_sd_configs"]] == [(["relay"], PORT)]


# --- the image ---


def test_the_image_has_what_a_relay_needs() -> None:
    dockerfile, lock = (ROOT / "Dockerfile").read_text(), (ROOT / "requirements.lock").read_text()
    assert str(PORT) in re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE)[0].split()
    for name in ("sqlalchemy", "psycopg", "psycopg-binary"):
        assert re.search(rf"^{name}==", lock, re.MULTILINE), name
