"""What `make verify-kubernetes` takes from the documentation is there, and becomes commands for its cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deployment import cluster
from tests.deployment.cluster import CLIENTS, Cluster, Load, documented
from tests.deployment.manifests import of_kind, workloads
from tests.deployment.verify_kubernetes import BACKUP, GUIDE, HERE, WITH_HANDLERS, shown_entries
from tests.support.harness import ROOT


@pytest.mark.parametrize(
    ("page", "containing"),
    [
        (GUIDE, "docker build"),
        (GUIDE, "kubectl create secret generic task-queue --namespace"),
        (GUIDE, "data.api-key}"),
        (GUIDE, "firmq doctor"),
        (GUIDE, "port-forward -n task-queue svc/gateway"),
        (GUIDE, "kubectl delete namespace task-queue"),
        (BACKUP, "> backup.part"),
        (BACKUP, "kubectl scale deployment -n task-queue gateway worker housekeeper"),
    ],
)
def test_the_documentation_has_the_commands_in_one_place(page: str, containing: str) -> None:
    assert documented(page, containing)


def test_a_manifest_passes_the_filter_and_an_image_is_loaded_by_the_command_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k8s").mkdir()
    (tmp_path / "k8s" / "deployment.yaml").write_text("policy/v1")
    (tmp_path / "kubectl").write_text('#!/bin/sh\necho "$@" "$(cat)"\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(cluster, "ADAPT", "sed s/v1/v1beta1/")
    monkeypatch.setattr(cluster, "LOAD", "echo loaded")
    block = f"{cluster.APPLY}\nkind load docker-image firmq:0.1.0   # or push it"
    assert Cluster(tmp_path).shell(block) == "apply -f - policy/v1beta1\nloaded firmq:0.1.0"


def test_two_commands_show_what_people_read_of_the_secret() -> None:
    assert [re.findall(r"data\.([\w-]+)", command) for command in shown_entries()] == [
        ["dashboard-password"],
        ["api-key"],
    ]


def test_ids_counts_and_noise_of_the_client_are_told_apart() -> None:
    load = Load(Cluster(ROOT))
    lines = [
        "9b2f6a52-5cc6-4c39-a34c-7f9a3c2ff1f0\n",
        "error: lost connection\n",
        '{"refused": {"503": 2}, "slowest": 1.5}\n',
    ]
    load._read(iter(lines))
    assert (load.ids, load.refused, load.slowest) == (["9b2f6a52-5cc6-4c39-a34c-7f9a3c2ff1f0"], {"503": 2}, 1.5)


def test_the_client_is_let_in_and_has_the_image_of_the_parts() -> None:
    namespace, pod = yaml.safe_load_all((HERE / "cluster_client.yaml").read_text())
    [rule] = of_kind("NetworkPolicy")["gateway"]["spec"]["ingress"]
    wanted = next(peer["namespaceSelector"] for peer in rule["from"] if "namespaceSelector" in peer)["matchLabels"]
    assert wanted.items() <= namespace["metadata"]["labels"].items()
    assert namespace["metadata"]["name"] == pod["metadata"]["namespace"] == CLIENTS
    assert pod["spec"]["containers"][0]["image"] == workloads()["gateway"].container["image"]


def test_the_handlers_are_laid_over_the_container_of_the_workers() -> None:
    [container] = WITH_HANDLERS["spec"]["template"]["spec"]["containers"]
    assert container["name"] == workloads()["worker"].container["name"]
    assert not {each["name"] for each in container["env"]} & {
        each["name"] for each in workloads()["worker"].container["env"]
    }
