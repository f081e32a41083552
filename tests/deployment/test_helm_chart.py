"""The Helm chart: it installs what k8s/deployment.yaml installs, and its values change what they say.

`helm` is that of the PATH or of `make helm`, without which only the last test runs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from firmq.shared.config.settings import load
from tests.deployment.manifests import (
    CLUSTER_WIDE,
    K8S,
    OURS,
    Manifest,
    check_schemas,
    documents,
    of_kind,
    without_hash,
    workloads,
)
from tests.support.harness import ROOT
from tools.helm_chart import main

CHART = K8S / "chart"
HELM = shutil.which("helm") or shutil.which(str(ROOT / ".venv" / "bin" / "helm"))
MANAGED = ("redis.enabled=false", "redis.external.cidrs={10.20.0.0/24}")
SENTINEL = (*MANAGED, "redis.external.sentinel=true", "redis.external.ports={6379,26379}")


def helm(*arguments: str) -> str:
    """Runs helm. Returns what it prints."""
    if not HELM:
        pytest.skip("helm is not installed: make helm")
    done = subprocess.run(
        [HELM, *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(folder: Path, *values: str) -> Path:
    """A file with everything that the chart makes with these values."""
    given = [part for each in values for part in ("--set", each)]
    path = folder / "all.yaml"
    path.write_text(helm("template", "release", str(CHART), "--namespace", "task-queue", *given))
    return path


def test_helm_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_chart_installs_the_objects_of_the_manifests(tmp_path: Path) -> None:
    ours = {identity(each): plain(each) for each in documents(rendered(tmp_path))}
    theirs = {identity(each): plain(each) for each in documents() if each["kind"] != "Namespace"}
    assert ours.keys() == theirs.keys()
    for name, manifest in theirs.items():
        assert ours[name] == manifest, name


def identity(manifest: Manifest) -> tuple[str, str]:
    name = manifest["metadata"]["name"]
    return manifest["kind"], without_hash(name) if manifest["kind"] == "ConfigMap" else name


def plain(node: Any) -> Any:
    """Without what differs by the tool: hashes in names, the order of variables, newlines at the end of files."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if not isinstance(node, dict):
        return node.rstrip("\n") if isinstance(node, str) else node
    found = {key: plain(value) for key, value in node.items()}
    if "env" in found:
        found["env"] = sorted(found["env"], key=lambda each: str(each["name"]))
    if node.get("kind") == "ConfigMap":
        found["metadata"]["name"] = without_hash(found["metadata"]["name"])
    for key in ("configMap", "configMapRef"):
        if "name" in found.get(key, {}):
            found[key]["name"] = without_hash(found[key]["name"])
    return found


@pytest.mark.parametrize("values", [(), MANAGED, SENTINEL, ("prometheus.enabled=false", "jaeger.enabled=false")])
def test_what_the_chart_makes_keeps_to_the_schemas(tmp_path: Path, values: tuple[str, ...]) -> None:
    manifests = documents(rendered(tmp_path, *values))
    for manifest in manifests:
        assert manifest["kind"] in CLUSTER_WIDE or manifest["metadata"]["namespace"] == "task-queue"
    check_schemas(manifests)


def test_a_changed_setting_gives_its_config_map_another_name(tmp_path: Path) -> None:
    names = [
        next(name for name in of_kind("ConfigMap", rendered(made, *values)) if name.startswith("settings"))
        for made, values in ((folder(tmp_path, "a"), ()), (folder(tmp_path, "b"), ("settings.LOG_LEVEL=DEBUG",)))
    ]
    assert names[0] != names[1]


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def test_a_large_number_stays_a_number_of_digits(tmp_path: Path) -> None:
    """Helm reads numbers as floats, and would write 8.05306368e+08."""
    path = rendered(tmp_path, "worker.env.EXECUTOR_MAX_MEMORY_BYTES=805306368")
    environment = {each["name"]: each.get("value") for each in workloads(path)["worker"].container["env"]}
    assert environment["EXECUTOR_MAX_MEMORY_BYTES"] == "805306368"


def test_with_another_redis_nothing_of_our_own_is_left(tmp_path: Path) -> None:
    path = rendered(tmp_path, *MANAGED)
    assert "redis" not in workloads(path)
    assert not of_kind("PriorityClass", path)
    assert of_kind("NetworkPolicy", path)["external-redis"]["spec"]["egress"][0]["ports"] == [
        {"protocol": "TCP", "port": 6380}
    ]
    for part in OURS:
        names = [variable["name"] for variable in workloads(path)[part].container["env"]]
        assert "REDIS_URL" in names
        assert "REDIS_PASSWORD" not in names


def test_with_sentinel_servers_and_sentinels_have_their_passwords(tmp_path: Path) -> None:
    path = rendered(tmp_path, *MANAGED, "redis.external.sentinel=true", "redis.external.ports={6379,26379}")
    for part in OURS:
        names = {variable["name"] for variable in workloads(path)[part].container["env"]}
        assert {"REDIS_URL", "REDIS_PASSWORD", "REDIS_SENTINEL_PASSWORD"} <= names


def test_without_load_balancers_and_credentials_nothing_of_them_is_left(tmp_path: Path) -> None:
    path = rendered(tmp_path, "loadBalancers.enabled=false", "credentials.enabled=false")
    assert not of_kind("Job", path)
    assert of_kind("Role", path).keys() == {"prometheus"}
    names = {name for kind in ("Service", "NetworkPolicy", "ServiceAccount") for name in of_kind(kind, path)}
    assert not [name for name in names if "load-balancer" in name or name == "credentials"]


def test_a_secret_of_another_name_is_the_one_that_the_job_may_create(tmp_path: Path) -> None:
    path = rendered(tmp_path, "secret=shop", "affinity.nodeAffinity.x=y")
    assert of_kind("Job", path)["credentials"]["spec"]["template"]["spec"]["containers"][0]["args"] == ["shop"]
    assert of_kind("Role", path)["credentials"]["rules"][0]["resourceNames"] == ["shop"]
    assert workloads(path)["worker"].pod["affinity"] == {"nodeAffinity": {"x": "y"}}


def test_an_upgrade_keeps_the_number_of_workers_unless_a_value_says_it(tmp_path: Path) -> None:
    assert "replicas" not in workloads(rendered(folder(tmp_path, "a")))["worker"].manifest["spec"]
    none = rendered(folder(tmp_path, "b"), "worker.replicas=0")
    assert workloads(none)["worker"].manifest["spec"]["replicas"] == 0


def test_every_setting_among_the_values_is_one() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in OURS:
        load({**values["settings"], **values[part]["env"]})


def test_the_templates_are_made_of_the_manifests() -> None:
    assert main(["--check"]) == 0
