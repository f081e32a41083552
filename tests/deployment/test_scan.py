"""Known weaknesses and schemas: every overlay, the chart and each manifest, by checkov and the schemas of Kubernetes.

checkov is that of the PATH or of `make checkov`, in an environment of its own; without it only the schemas are checked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.manifests import K8S, LOADER, SINGLE_FILE, check_schemas, yaml_files
from tests.deployment.test_helm_chart import CHART, MANAGED, SENTINEL, helm
from tests.deployment.test_kubernetes_overlays import KUBECTL
from tests.support.harness import ROOT

CHECKOV = shutil.which("checkov") or shutil.which(str(ROOT / ".venv" / "checkov" / "bin" / "checkov"))
CONFIG = K8S / "checkov.yaml"
KUSTOMIZATIONS = sorted(path.parent for path in K8S.rglob("kustomization.yaml"))
OVERLAYS = [folder for folder in KUSTOMIZATIONS if folder.parent.name == "overlays"]
PARTS = [folder for folder in KUSTOMIZATIONS if folder not in OVERLAYS]
"""Overlays are applied; these are parts of them, without namespace and versions."""
CHARTS = {"chart": (), "chart with a managed Redis": MANAGED, "chart with Sentinel": SENTINEL}
PLAIN = [SINGLE_FILE, *yaml_files(K8S / "extras")]


@cache
def kustomized(folder: Path) -> str:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def templated(values: Iterable[str]) -> str:
    given = [part for each in values for part in ("--set", each)]
    return helm("template", "release", str(CHART), "--namespace", "task-queue", *given)


@KUBECTL
@pytest.mark.parametrize("folder", PARTS, ids=lambda folder: str(folder.relative_to(K8S)))
def test_a_part_of_overlays_keeps_to_the_schemas(folder: Path) -> None:
    check_schemas(yaml.load_all(kustomized(folder), LOADER))


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What checkov finds without an exception."""
    if not CHECKOV or not shutil.which("kubectl"):
        pytest.skip("checkov or kubectl is not installed: make checkov")
    folder = tmp_path_factory.mktemp("rendered")
    texts = {each.name: kustomized(each) for each in OVERLAYS}
    texts |= {name: templated(values) for name, values in CHARTS.items()}
    texts |= {path.name: path.read_text() for path in PLAIN}
    for name, text in texts.items():
        (folder / f"{re.sub('[^a-z]', '-', name)}.yaml").write_text(text)
    done = subprocess.run(
        [CHECKOV, "--framework", "kubernetes", "--skip-download", "--quiet", "-o", "json", "-d", folder],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["passed"] > 1000, done.stderr
    assert not found["summary"]["parsing_errors"]
    checks: list[dict[str, Any]] = found["results"]["failed_checks"]
    return checks


def test_checkov_finds_nothing_but_the_exceptions(findings: list[dict[str, Any]]) -> None:
    excepted = yaml.safe_load(CONFIG.read_text())["skip-check"]
    assert [
        f"{each['file_path']}: {each['resource']}: {each['check_id']} {each['check_name']}"
        for each in findings
        if each["check_id"] not in excepted
    ] == []


def test_every_exception_has_a_reason_and_is_needed(findings: list[dict[str, Any]]) -> None:
    lines = CONFIG.read_text().splitlines()
    excepted = {line.split()[1]: lines[at - 1] for at, line in enumerate(lines) if line.lstrip().startswith("- CKV")}
    assert all(before.lstrip().startswith("#") for before in excepted.values())
    assert excepted.keys() == {each["check_id"] for each in findings}


def test_checkov_is_pinned() -> None:
    assert re.fullmatch(r"checkov==[\d.]+\n", (K8S / "requirements-scan.txt").read_text())
