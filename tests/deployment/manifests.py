"""The Kubernetes manifests as the tests look at them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.support.harness import ROOT

K8S = ROOT / "k8s"
SINGLE_FILE = K8S / "deployment.yaml"
Manifest = dict[str, Any]

OURS = ("gateway", "worker", "housekeeper", "dashboard")
"""The parts that run our image."""
NAME = "app.kubernetes.io/name"
OLDEST, NEWEST = "1.27", "1.37"
"""The versions of Kubernetes whose schemas are checked."""
FOREIGN = ("keda.sh/", "traefik.io/")
"""Kinds that others bring, for which there are no schemas here."""
CLUSTER_WIDE = {"Namespace", "PriorityClass"}
"""Kinds that are in no namespace."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where there is libyaml; whoever collects the tests waits for it."""
_HASH = re.compile(r"-[0-9a-z]{10}$")


@cache
def documents(path: Path = SINGLE_FILE) -> tuple[Manifest, ...]:
    """What a file says."""
    return tuple(yaml.load_all(path.read_text(), LOADER))


def check_schemas(manifests: Iterable[Manifest | None]) -> None:
    """Raises for a manifest that does not keep to the schemas of Kubernetes."""
    for each in manifests:
        if each and not each["apiVersion"].startswith(FOREIGN):
            _check_schemas(json.dumps(each, sort_keys=True, default=str))


@cache
def _check_schemas(manifest: str) -> None:
    """Overlays have most of their manifests in common."""
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(json.loads(manifest), version, strict=True)


def of_kind(kind: str, path: Path = SINGLE_FILE) -> dict[str, Manifest]:
    """The objects of one kind by name."""
    return {each["metadata"]["name"]: each for each in documents(path) if each["kind"] == kind}


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet: who runs, and how."""

    name: str
    manifest: Manifest

    @property
    def template(self) -> Manifest:
        found: Manifest = self.manifest["spec"]["template"]
        return found

    @property
    def pod(self) -> Manifest:
        found: Manifest = self.template["spec"]
        return found

    @property
    def container(self) -> Manifest:
        """The only one it has."""
        [found] = self.pod["containers"]
        return dict(found)

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    def environment(self) -> dict[str, str]:
        """What the container's process is told, with a stand-in for what comes from the cluster."""
        told: dict[str, str] = {}
        for source in self.container.get("envFrom", []):
            told |= config_map(source["configMapRef"]["name"])
        for variable in self.container.get("env", []):
            told[variable["name"]] = variable.get("value", "made-up-as-the-cluster-would")
        return told


@cache
def workloads(path: Path = SINGLE_FILE) -> dict[str, Workload]:
    """All of them by name."""
    found = {**of_kind("Deployment", path), **of_kind("StatefulSet", path)}
    return {name: Workload(name, manifest) for name, manifest in found.items()}


def config_map(name: str, path: Path = SINGLE_FILE) -> dict[str, str]:
    """The data of a ConfigMap, by its name with or without the hash of its content."""
    for full, manifest in of_kind("ConfigMap", path).items():
        if name in (full, without_hash(full)):
            return dict(manifest["data"])
    raise KeyError(name)


def without_hash(name: str) -> str:
    """The name of a generated ConfigMap as its author knows it."""
    return _HASH.sub("", name)


def yaml_files(folder: Path) -> Iterator[Path]:
    """Every manifest below a folder; not what tells kustomize what to do."""
    for path in sorted(folder.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield path


def size(text: str) -> float:
    """Bytes of a Kubernetes quantity."""
    number, unit = re.fullmatch(r"(\d+)([KMG]i)", text).groups()  # type: ignore[union-attr]  # or the test fails
    return float(int(number) << {"Ki": 10, "Mi": 20, "Gi": 30}[unit])
