"""A Kubernetes cluster and the product on it, by the commands that the documentation gives: kubectl, docker, a shell.

The cluster is that of KUBECONFIG. Variables are for one that is not as the documentation has it: VERIFY_LOAD is the
command that loads an image (`kind load docker-image`), VERIFY_ADAPT a filter through which manifests pass before they
are applied, and VERIFY_DOCKER stands before each docker command.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployment.engine import CommandFailed
from tests.support.harness import ROOT, wait_until

NAMESPACE = "task-queue"
CLIENTS = "task-queue-clients"
"""The namespace of the pod that submits."""
APPLY = "kubectl apply -f k8s/deployment.yaml"
LOAD = os.environ.get("VERIFY_LOAD", "kind load docker-image")
ID = re.compile(r"[\w-]{20,}")
ADAPT = os.environ.get("VERIFY_ADAPT", "cat")
DOCKER = os.environ.get("VERIFY_DOCKER", "")


def documented(page: str, containing: str) -> str:
    """Returns the commands of a page's only block with this text."""
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    [block] = [each for each in blocks if containing in each]
    return str(block)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Runs commands on the cluster, and in a folder that has what a checkout has."""

    folder: Path

    def shell(self, commands: str, seconds: float = 300, given: str = "", folder: Path | None = None) -> str:
        """Runs documented commands word by word, except what is this cluster's own. Returns what they print."""
        for theirs, ours in (
            (APPLY, f"{ADAPT} <k8s/deployment.yaml | kubectl apply -f -"),
            ("kind load docker-image", LOAD),
            ("docker build", f"{DOCKER} docker build"),
        ):
            commands = commands.replace(theirs, ours)
        return run(["bash", "-euo", "pipefail", "-c", commands], seconds, given, folder or self.folder)

    def kubectl(self, *arguments: str, namespace: str = NAMESPACE, seconds: float = 120, given: str = "") -> str:
        """Runs kubectl in a namespace. Returns what it prints; raises CommandFailed."""
        return run(["kubectl", "-n", namespace, *arguments], seconds, given, self.folder)

    def objects(self, *arguments: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """Returns what `kubectl get` finds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "-o", "json", *arguments, namespace=namespace))[
            "items"
        ]
        return found

    def pods(self, part: str = "") -> list[dict[str, Any]]:
        """Returns the pods of a part, or all, that have not ended and are not being deleted."""
        selector = f"app.kubernetes.io/name={part}" if part else ""
        return [
            each
            for each in self.objects("pods", "-l", selector)
            if "deletionTimestamp" not in each["metadata"] and each["status"].get("phase") != "Succeeded"
        ]

    def ready(self, part: str = "") -> list[str]:
        """Returns the names of the pods that are ready."""
        return [each["metadata"]["name"] for each in self.pods(part) if is_ready(each)]

    def rolled_out(self, *parts: str, seconds: float = 300) -> None:
        """Waits until every pod of the deployments is of their newest revision, and ready."""
        for part in parts:
            self.kubectl("rollout", "status", f"deployment/{part}", f"--timeout={seconds:.0f}s", seconds=seconds + 10)

    @contextmanager
    def forwarded(self, service: str) -> Iterator[str]:
        """Runs the documented port-forward of a service. Yields the address."""
        block = documented("docs/deploy/kubernetes.md", "port-forward -n task-queue svc/gateway")
        [command] = [line for line in block.splitlines() if f"svc/{service} " in line]
        with running(shlex.split(command)) as process:
            assert process.stdout
            shown = process.stdout.readline()
            assert "Forwarding from" in shown, shown
            yield f"http://127.0.0.1:{command.rpartition(' ')[2].partition(':')[0]}"


def is_ready(pod: dict[str, Any]) -> bool:
    """Returns whether a pod gets requests."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def run(command: Sequence[str], seconds: float, given: str, folder: Path) -> str:
    """Runs a command to its end. Returns what it prints; raises CommandFailed with the rest."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False, input=given
    )
    if done.returncode != 0:
        shown = shlex.join(command) if len(shlex.join(command)) < 2000 else command[0]
        raise CommandFailed(f"{shown}\nended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout.strip()


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a command until it is left."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


@dataclass(slots=True)
class Load:
    """Tasks that a pod of the cluster submits, and what became of them."""

    cluster: Cluster
    ids: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0

    @property
    def command(self) -> list[str]:
        return ["kubectl", "exec", "-i", "-n", CLIENTS, "client", "--", "python", "/client/cluster_client.py"]

    @contextmanager
    def submitted(self, rate: float = 40, seconds: float = 0.04) -> Iterator[None]:
        """Submits while it is entered."""
        with running([*self.command, "load", str(rate), str(seconds)]) as process:
            assert process.stdin
            assert process.stdout
            reader = threading.Thread(target=self._read, args=(process.stdout,))
            reader.start()
            begun = len(self.ids)
            wait_until(lambda: len(self.ids) >= begun + 20, "the client submits", 60)
            yield
            before = len(self.ids)
            wait_until(lambda: len(self.ids) >= before + 20, "the client submits", 90)
            process.stdin.close()
            reader.join(240)
            assert not reader.is_alive(), "the client did not end"

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.startswith("{"):
                told = json.loads(line)
                self.refused, self.slowest = told["refused"], told["slowest"]
            elif ID.fullmatch(line.strip()):
                self.ids.append(line.strip())

    def outcome(self) -> dict[str, int]:
        """Waits for the end of all tasks. Returns how many ended how."""
        told: dict[str, int] = json.loads(run([*self.command, "outcome"], 400, "\n".join(self.ids), ROOT))
        return told
