"""What kustomize does with our files, as far as we use it: for machines without kubectl.

Names of generated ConfigMaps come without the hash of their content here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deployment.manifests import CLUSTER_WIDE, Manifest, without_hash

_KNOWN = {"apiVersion", "kind", "resources", "namespace", "labels", "images", "replicas", "configMapGenerator"}


def render(folder: Path) -> list[Manifest]:
    """The objects of an overlay or base."""
    told = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert told.keys() <= _KNOWN, f"{folder}: what does {told.keys() - _KNOWN} do?"
    objects = [each for name in told.get("resources", []) for each in _resource(folder / name)]
    objects += [_config_map(folder, entry) for entry in told.get("configMapGenerator", [])]
    for manifest in objects:
        _transform(manifest, told)
    return objects


def normalised(manifest: Manifest) -> Manifest:
    """The object without hashes in names and references."""
    plain: Manifest = copy.deepcopy(manifest)
    if plain["kind"] == "ConfigMap":
        plain["metadata"]["name"] = without_hash(plain["metadata"]["name"])
    for reference in _references(plain):
        reference["name"] = without_hash(reference["name"])
    return plain


def _references(node: Any) -> Iterator[dict[str, str]]:
    """Everything in a pod that names a ConfigMap."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("configMap", "configMapRef", "configMapKeyRef") and isinstance(value, dict) and "name" in value:
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def _resource(path: Path) -> list[Manifest]:
    return render(path.resolve()) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))


def _config_map(folder: Path, entry: Manifest) -> Manifest:
    data = {name: (folder / name).read_text() for name in entry.get("files", [])}
    for name in entry.get("envs", []):
        lines = (folder / name).read_text().splitlines()
        data |= dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": entry["name"]}, "data": data}


def _transform(manifest: Manifest, told: Manifest) -> None:
    if "namespace" in told and manifest["kind"] not in CLUSTER_WIDE:
        for each in (manifest["metadata"], *manifest.get("subjects", [])):
            each["namespace"] = told["namespace"]
    for entry in told.get("labels", []):
        _label(manifest, entry["pairs"])
    for entry in told.get("replicas", []):
        if manifest["kind"] in ("Deployment", "StatefulSet") and manifest["metadata"]["name"] == entry["name"]:
            manifest["spec"]["replicas"] = entry["count"]
    for entry in told.get("images", []):
        _name_image(manifest, entry)


def _label(manifest: Manifest, pairs: dict[str, str]) -> None:
    spec = manifest.get("spec", {})
    templates = [spec["template"]] if "template" in spec else []
    for labelled in (manifest, *templates, *spec.get("volumeClaimTemplates", [])):
        labelled["metadata"]["labels"] = labelled["metadata"].get("labels", {}) | pairs


def _name_image(manifest: Manifest, entry: Manifest) -> None:
    for container in manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        if container["image"] == entry["name"]:
            container["image"] = f"{entry['newName']}:{entry['newTag']}"
