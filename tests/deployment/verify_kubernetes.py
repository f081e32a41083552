"""`make verify-kubernetes`: the manifests on the cluster of KUBECONFIG, from the build to the removal of the namespace.

It refuses a cluster on which the product is installed. What it runs is what the documentation says, word by word.
`tests/deployment/cluster.py` has the variables for clusters that load images or take manifests in another way.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from firmq import Client
from firmq.dashboard.auth.users import Users
from firmq.shared.submission.options import new_task
from tests.deployment.claims import claim
from tests.deployment.cluster import APPLY, CLIENTS, NAMESPACE, Cluster, Load, documented, is_ready
from tests.deployment.engine import CommandFailed
from tests.deployment.manifests import OURS, workloads
from tests.support.harness import ROOT, wait_until

GUIDE, BACKUP = "docs/deploy/kubernetes.md", "docs/operate/backup.md"
TASKS = 2000
LONGEST_REMOVAL = 60
"""Seconds that the namespace may take to go, on a node that has processors to spare."""
HERE = ROOT / "tests" / "deployment"


class Verification:
    """The claims, in the order in which they are shown."""

    def __init__(self, cluster: Cluster, jaeger_stand_in: bool, longest_removal: int = LONGEST_REMOVAL) -> None:
        self.cluster = cluster
        self.jaeger_stand_in = jaeger_stand_in
        self.longest_removal = longest_removal
        self.kubectl = cluster.kubectl
        self.key = ""
        self.accepted = self.lost = 0

    def run(self) -> None:
        self.build()
        self.install()
        self.apply_twice()
        self.work()
        self.add_a_client()
        self.scale()
        self.kill()
        self.update()
        self.wrong_password()
        self.evict()
        self.back_up_and_restore()
        self.take_memory()
        self.remove()

    # --- building and starting ---

    def build(self) -> None:
        block = documented(GUIDE, "docker build").splitlines()
        with claim("the image is built and loaded"):
            self.cluster.shell("\n".join(block[:2]), 900, folder=ROOT)
        if self.jaeger_stand_in:
            image = workloads()["jaeger"].container["image"]
            dockerfile = 'FROM firmq:0.1.0\nCOPY jaeger_stand_in.py /\nENTRYPOINT ["python", "/jaeger_stand_in.py"]\n'
            build = f"docker build -q -t {image} -f - tests/deployment\nkind load docker-image {image}"
            self.cluster.shell(build, given=dockerfile, folder=ROOT)

    def install(self) -> None:
        with claim("after one apply all pods become ready by themselves, with a secret of random entries") as figures:
            began = time.monotonic()
            self.cluster.shell(APPLY)
            wait_until(self._all_ready, "every pod is ready", 400)
            figures.append(f"{len(self.cluster.ready())} pods, ready after {time.monotonic() - began:.0f} s")
        with claim("the documentation's commands show the password of the dashboard and the key of the API"):
            password, self.key = (self.cluster.shell(line) for line in shown_entries())
            assert self.key.startswith("fq_")
            users = self.cluster.shell(shown_entries()[0].replace("dashboard-password", "dashboard-users"))
            assert Users([users]).check("admin", password)
        with claim("the Job may create and change this secret only"):
            for request, name, permitted in PERMISSIONS:
                account = f"--as=system:serviceaccount:{NAMESPACE}:credentials"
                said = self.cluster.shell(
                    f"kubectl auth can-i -n {NAMESPACE} {request} secrets{name} {account} || true"
                )
                assert said.splitlines()[-1] == ("yes" if permitted else "no"), f"{request} {name}: {said}"
        with claim("the doctor finds no error") as figures:
            command = "kubectl exec -n task-queue deployment/gateway -- firmq doctor"
            assert command in documented(GUIDE, "firmq doctor")
            found = self.cluster.shell(f"{command} --json || test $? -eq 1")
            figures.append(
                f"warnings: {[each['check'] for each in json.loads(found)['checks'] if each['level'] != 'ok']}"
            )

    def apply_twice(self) -> None:
        with claim("three more applies, one of them after the end of the Job, change nothing") as figures:
            secret = self.kubectl("get", "secret", "task-queue", "-o", "json")
            before = self._specifications()
            said = [line.split() for _ in range(2) for line in self.cluster.shell(APPLY).splitlines()]
            self.kubectl("delete", "job", "credentials", "--ignore-not-found")  # as some minutes later
            self.cluster.shell(APPLY)
            self.kubectl("wait", "--for=condition=Complete", "job/credentials", "--timeout=120s")
            assert self._specifications() == before
            assert self.kubectl("get", "secret", "task-queue", "-o", "json") == secret
            figures.append(f"{len(before)} objects and pods")
            touched = sorted({words[0] for words in said if words[-1] != "unchanged"})
            if touched:  # as kubectl of another version than the cluster's may say
                figures.append(f"the same again in {', '.join(touched)}")

    # --- working ---

    def work(self) -> None:
        with ExitStack() as ways:
            gateway, dashboard, prometheus, jaeger = (
                ways.enter_context(self.cluster.forwarded(each))
                for each in ("gateway", "dashboard", "prometheus", "jaeger")
            )
            with (
                Client(gateway, api_key=self.key) as client,
                claim(f"{TASKS} tasks through port-forward complete") as figures,
            ):
                began = time.monotonic()
                batch = client.batch(new_task("calculate", f"{number} + 1") for number in range(TASKS)).drain()
                assert batch.accepted == TASKS, batch
                assert batch.batch_id
                done = client.batches.wait(batch.batch_id, timeout=180)
                self._count(dict(done.counts))
                figures.append(f"{TASKS / (time.monotonic() - began):.0f} a second from submission to end")
            with claim("without a key a submission is refused, and without a password the dashboard"):
                assert httpx.post(f"{gateway}/tasks", json={"type": "process", "data": "x"}).status_code == 401
                assert "password" in httpx.get(dashboard, follow_redirects=True).text.lower()
            with claim("Prometheus sees every pod of ours up, and its rules do not fail") as figures:
                figures.append(str(self._targets(prometheus)))
                rules = httpx.get(f"{prometheus}/api/v1/rules").json()["data"]["groups"]
                assert rules
                assert not [rule for group in rules for rule in group["rules"] if rule["health"] == "err"]
            with (
                claim("the trace of a task is in Jaeger, with gateway and worker"),
                Client(gateway, api_key=self.key) as client,
            ):
                trace = os.urandom(16).hex()
                headers = {"Authorization": f"Bearer {self.key}", "traceparent": f"00-{trace}-{os.urandom(8).hex()}-01"}
                task = httpx.post(f"{gateway}/tasks", json={"type": "process", "data": "x"}, headers=headers).json()
                client.wait(task["task_id"], timeout=30)
                url = f"{jaeger}/api/traces/{trace}"
                wait_until(lambda: all(part in httpx.get(url).text for part in ("gateway", "worker")), "spans", 30)

    def add_a_client(self) -> None:
        """Prepares load: a pod that submits, and task types of this verification."""
        with claim("a pod of a labelled namespace reaches the gateway; workers take further handlers"):
            self.kubectl("apply", "-f", str(HERE / "cluster_client.yaml"), namespace=CLIENTS)
            self.kubectl(
                "create", "secret", "generic", "client", f"--from-literal=api-key={self.key}", namespace=CLIENTS
            )
            script = f"--from-file={HERE / 'cluster_client.py'}"
            self.kubectl("create", "configmap", "client", script, namespace=CLIENTS)
            self.kubectl("create", "configmap", "handlers", f"--from-file={HERE / 'cluster_handlers.py'}")
            self.kubectl("patch", "deployment", "worker", "-p", json.dumps(WITH_HANDLERS))
            self.cluster.rolled_out("worker")
            self.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s", namespace=CLIENTS)
            with self._load():
                pass

    def scale(self) -> None:
        with claim("workers are scaled 1, 5, 2 under load") as figures, self._load(figures):
            for replicas in (5, 2):
                began = time.monotonic()
                self.kubectl("scale", "deployment", "worker", f"--replicas={replicas}")
                wait_until(lambda n=replicas: self._settled("worker", n), f"there are {replicas} workers", 240)  # type: ignore[misc]
                figures.append(f"{replicas} after {time.monotonic() - began:.0f} s")

    # --- dying ---

    def kill(self) -> None:
        with claim("a worker pod deleted with --force under load") as figures, self._load(figures):
            self._delete(self.cluster.ready("worker")[0], figures, "worker", 2)
        with claim("the leading housekeeper deleted with --force") as figures, self._load(figures):
            leader, began = self._leader(), time.monotonic()
            self.kubectl("delete", "pod", leader, "--force", "--grace-period=0")
            wait_until(lambda: self._leader() not in ("", leader), "another leads", 60)
            figures.append(f"another leads after {time.monotonic() - began:.0f} s")
            wait_until(lambda: self._settled("housekeeper", 3), "there are three again", 180)
        with claim("Redis deleted with --force under load") as figures, self._load(figures):
            self._delete("redis-0", figures, "redis", 1)

    def update(self) -> None:
        with claim("rolling restart of every deployment under load") as figures, self._load(figures):
            for part in OURS:
                self.kubectl("rollout", "restart", f"deployment/{part}")
            self.cluster.rolled_out(*OURS)
        with claim("undo of every deployment under load") as figures, self._load(figures):
            for part in OURS:
                self.kubectl("rollout", "undo", f"deployment/{part}")
            self.cluster.rolled_out(*OURS)

    def wrong_password(self) -> None:
        text = "a wrong password stops new pods only, which name the setting; undo takes them away"
        with claim(text) as figures, self._load(figures):
            self.kubectl("set", "env", "deployment/worker", "REDIS_PASSWORD=wrong")
            wait_until(lambda: "REDIS_PASSWORD" in self._last_words("worker"), "a new pod says why it stopped", 120)
            assert len(self.cluster.ready("worker")) == 2
            self.kubectl("rollout", "undo", "deployment/worker")
            self.cluster.rolled_out("worker")

    def evict(self) -> None:
        with claim("evictions at once leave what the disruption budgets say") as figures, self._load(figures):
            for part in OURS:
                wait_until(lambda each=part: self._budget(each) > 0, f"{part} has its pods", 120)  # type: ignore[misc]
                wished = self.cluster.ready(part)
                granted = sum(self._evict(each) for each in wished)
                figures.append(f"{part} {granted} of {len(wished)}")
                assert granted == 1, f"{granted} of {len(wished)} pods of {part} went at once"
            wait_until(self._all_ready, "every pod is back", 180)

    # --- data ---

    def back_up_and_restore(self) -> None:
        with claim("a backup under load, and a restore, by the commands of the documentation") as figures:
            kept = Load(self.cluster)
            with kept.submitted():
                early = Load(self.cluster, list(kept.ids))  # all accepted before the backup begins
                self.cluster.shell(documented(BACKUP, "> backup.part"), 120)
            self._count(kept.outcome())
            later = Load(self.cluster)
            with later.submitted():
                pass
            self._count(later.outcome())
            began = time.monotonic()
            restore = documented(BACKUP, "kubectl scale deployment -n task-queue gateway worker housekeeper")
            self.cluster.shell(re.sub(r"(gateway worker --replicas)=3", r"\1=2", restore), 500)
            self.cluster.rolled_out(*OURS)
            figures.append(f"ready {time.monotonic() - began:.0f} s after its first step")
            assert later.outcome() == {"lost": len(later.ids)}, "what came after the backup is gone"
            self._count(early.outcome())

    def take_memory(self) -> None:
        with claim("a handler that takes more memory than its executor may becomes a dead letter alone") as figures:
            self._hungry(figures, megabytes=600)
        with claim("one that takes more than its pod has, faster than it can be measured, likewise") as figures:
            self._hungry(figures, megabytes=1200, at_once=True)

    def remove(self) -> None:
        with claim(f"the namespace is gone within {self.longest_removal} s, and with it everything") as figures:
            self.kubectl("delete", "namespace", CLIENTS)
            began = time.monotonic()
            self.cluster.shell(documented(GUIDE, "kubectl delete namespace task-queue"), 200)
            seconds = time.monotonic() - began
            figures.append(f"{seconds:.0f} s")
            assert seconds <= self.longest_removal, f"it took {seconds:.0f} s"
            wait_until(lambda: not left_behind(self.cluster), "nothing is left", 30)
        with claim(f"{self.lost} of {self.accepted} accepted tasks were lost"):
            assert self.lost == 0

    # --- how it is asked ---

    def _all_ready(self) -> bool:
        pods = self.cluster.pods()
        parts = Counter(each["metadata"]["labels"][NAME] for each in pods)
        return parts.keys() == workloads().keys() and all(map(is_ready, pods))

    def _specifications(self) -> dict[str, Any]:
        """What the objects say, with the generation that grows with each change; and which pods there are."""
        kinds = "deployments,statefulsets,services,configmaps,hpa,pdb,netpol,serviceaccounts,roles,rolebindings,pods"
        return {
            f"{each['kind']}/{each['metadata']['name']}": (
                each["metadata"]["uid"],
                each["metadata"].get("generation"),
                each.get("spec"),
                each.get("data"),
            )
            for each in self.cluster.objects(kinds)
            if each.get("status", {}).get("phase") != "Succeeded"  # the pod of the Job
        }

    def _targets(self, prometheus: str) -> dict[str, int]:
        wanted = {part: len(self.cluster.ready(part)) for part in OURS}
        up = Counter[str]()

        def seen() -> bool:
            up.clear()
            targets = httpx.get(f"{prometheus}/api/v1/targets?state=active").json()["data"]["activeTargets"]
            up.update(target["labels"]["job"] for target in targets if target["health"] == "up")
            return up.total() == len(targets) and up == wanted

        wait_until(seen, f"Prometheus sees {wanted} and nothing down: {up}", 120)
        return wanted

    @contextmanager
    def _load(self, figures: list[str] | None = None) -> Iterator[None]:
        """Submits while it is entered; afterwards every accepted task has completed."""
        load = Load(self.cluster)
        with load.submitted():
            yield
        self._count(load.outcome())
        if figures is not None:
            refused = sum(load.refused.values())
            figures.append(f"{len(load.ids)} tasks, {refused} refusals, slowest submission {load.slowest} s")
            if refused:
                print(f"    refused: {load.refused}", file=sys.stderr)

    def _count(self, outcome: dict[str, int]) -> None:
        number = sum(outcome.values())
        self.accepted += number
        self.lost += number - outcome.get("completed", 0)
        assert outcome.get("completed", 0) == number, outcome

    def _settled(self, part: str, number: int) -> bool:
        pods = self.cluster.objects("pods", "-l", f"{NAME}={part}")
        return len(pods) == number and all(map(is_ready, pods))

    def _delete(self, pod: str, figures: list[str], part: str, number: int) -> None:
        """Deletes a pod at once, and waits for another in its place."""
        uid = {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.cluster.pods(part)}[pod]
        began = time.monotonic()
        self.kubectl("delete", "pod", pod, "--force", "--grace-period=0")

        def replaced() -> bool:
            pods = self.cluster.pods(part)
            return len(pods) == number and all(is_ready(each) and each["metadata"]["uid"] != uid for each in pods)

        wait_until(replaced, f"{part} has all its pods", 180)
        figures.append(f"replaced after {time.monotonic() - began:.0f} s")

    def _leader(self) -> str:
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9101/health/live').read().decode())"
        for pod in self.cluster.ready("housekeeper"):
            with suppress(CommandFailed):
                if json.loads(self.kubectl("exec", pod, "--", "python", "-c", ask)).get("leader"):
                    return pod
        return ""

    def _last_words(self, part: str) -> str:
        """What the pods of a part that are not ready logged."""
        words = ""
        for pod in self.cluster.pods(part):
            if not is_ready(pod):
                with suppress(CommandFailed):
                    words += self.kubectl("logs", pod["metadata"]["name"])
        return words

    def _budget(self, part: str) -> int:
        told = self.cluster.objects("pdb")
        return next(int(each["status"]["disruptionsAllowed"]) for each in told if each["metadata"]["name"] == part)

    def _evict(self, pod: str) -> bool:
        version = "policy/v1" if "policy/v1\n" in self.kubectl("api-versions") + "\n" else "policy/v1beta1"
        body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        try:
            url = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
            self.kubectl("create", "--raw", url, "-f", "-", given=json.dumps(body))
        except CommandFailed as refused:
            if "disruption budget" in str(refused):
                return False
            raise
        return True

    def _hungry(self, figures: list[str], **data: Any) -> None:
        restarts = self._restarts()
        with self._load(), self.cluster.forwarded("gateway") as gateway, Client(gateway, api_key=self.key) as client:
            began = time.monotonic()
            task = client.submit("hungry", data)
            ended = client.wait(task.task_id, timeout=120)
            assert ended.error
            figures.append(f"{ended.error.type} after {time.monotonic() - began:.0f} s: {ended.error.message}")
            assert ended.status == "failed"
        wait_until(self._all_ready, "every pod is ready", 60)
        figures.append(f"{self._restarts() - restarts} restarts of a container")

    def _restarts(self) -> int:
        states = [each["status"]["containerStatuses"] for each in self.cluster.pods("worker")]
        return sum(int(each["restartCount"]) for found in states for each in found)


NAME = "app.kubernetes.io/name"
WITH_HANDLERS: dict[str, Any] = {
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "env": [
                            {"name": "TASK_MODULES", "value": "firmq.worker.handlers.examples,cluster_handlers"},
                            {"name": "PYTHONPATH", "value": "/app:/handlers"},
                        ],
                        "volumeMounts": [{"name": "handlers", "mountPath": "/handlers", "readOnly": True}],
                    }
                ],
                "volumes": [{"name": "handlers", "configMap": {"name": "handlers"}}],
            }
        }
    }
}
"""What is laid over the workers, so that they have the task types of this verification."""


PERMISSIONS = (
    ("get", "/task-queue", True),
    ("create", "", False),
    ("list", "", False),
    ("get", "/other", False),
    ("patch", "/other", False),
    ("delete", "/task-queue", False),
    ("update", "/task-queue", False),
)
"""Requests for secrets, and whether the Job's service account may send them."""


def shown_entries() -> list[str]:
    """Returns the commands that show the password of the dashboard and the API key."""
    return documented(GUIDE, "data.api-key}").splitlines()


def left_behind(cluster: Cluster) -> list[str]:
    """Returns the names of what the product has on the cluster."""
    found = cluster.kubectl("get", "namespaces,pv,priorityclasses", "-o", "json")
    return [
        f"{each['kind']}/{each['metadata']['name']}"
        for each in json.loads(found)["items"]
        if "task-queue" in each["metadata"]["name"]
        or each.get("spec", {}).get("claimRef", {}).get("namespace") == NAMESPACE
    ]


def clean_up(cluster: Cluster) -> None:
    """Removes what the verification made, however it ended."""
    for kind, name in (("namespace", CLIENTS), ("namespace", NAMESPACE), ("priorityclass", "task-queue-redis")):
        cluster.kubectl("delete", kind, name, "--ignore-not-found", "--timeout=120s", seconds=150)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deployment.verify_kubernetes")
    parser.add_argument("--jaeger-stand-in", action="store_true", help="put something in the place of Jaeger's image")
    parser.add_argument(
        "--removal", type=int, default=LONGEST_REMOVAL, help="seconds that the namespace may take to go"
    )
    parser.add_argument("--keep", action="store_true", help="leave what is there when a claim does not hold")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("k8s", ".venv"):
            (Path(folder) / name).symlink_to(ROOT / name)
        cluster = Cluster(Path(folder))
        if left := left_behind(cluster):
            print(f"the cluster has {', '.join(left)}: take one without Firmq, or remove it", file=sys.stderr)
            return 2
        try:
            Verification(cluster, chosen.jaeger_stand_in, chosen.removal).run()
        except BaseException:
            with suppress(CommandFailed):
                print(cluster.kubectl("get", "pods"), file=sys.stderr)
                print(cluster.kubectl("get", "events", "--sort-by=.lastTimestamp")[-3000:], file=sys.stderr)
            if not chosen.keep:
                clean_up(cluster)
            raise
        clean_up(cluster)
    print(f"everything shown in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
