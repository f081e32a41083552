"""The commands in housekeeping's README give the answers that are shown there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import yaml

from firmq.shared.config.settings import Settings
from firmq.shared.domain.schedule_body import read_declared
from tests.integration.housekeeping.cluster import Cluster
from tests.support.harness import ROOT, WEIGHTS, System, free_port, wait_until

TEXT = (ROOT / "worker/housekeeping/README.md").read_text()


def walk_through() -> Iterator[tuple[str, str]]:
    """Commands and the answers shown for them; `…` stands for what differs or was left out."""
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL):
        for part in block.split("$ ", 1)[1].split("\n$ "):
            command, _, shown = part.partition("\n")
            yield command, shown.strip()


def run(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def test_every_command_gives_the_answer_that_is_shown(system: System) -> None:
    cluster, port = Cluster(system), free_port()
    try:
        cluster.start()
        system.start("gateway", GATEWAY_PORT=str(port))
        system.start_worker(WORKER_EXECUTORS="2")
        wait_until(lambda: run(f"curl -s localhost:{port}/health/live || true"), "the gateway answers")
        for command, shown in walk_through():
            if "/metrics" in command:
                wait_until(cluster.leader, "somebody leads")
            got = run(command.replace("localhost:8000", f"127.0.0.1:{port}"))
            pattern = "".join(".*?" if part == "…" else re.escape(part) for part in re.split("(…)", shown))
            assert re.fullmatch(pattern + (".*" if shown.endswith("…") else ""), got, re.DOTALL), f"{command}\n{got}"
    finally:
        cluster.close()


def test_the_schedules_shown_can_be_declared() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    declared = yaml.safe_load(block)["schedules"]
    assert [read_declared(name, entry, WEIGHTS, "normal").name for name, entry in declared.items()] == [
        "nightly",
        "pulse",
    ]


def test_settings_that_are_named_exist() -> None:
    named = set(re.findall(r"\bHOUSEKEEPER_[A-Z_]+", TEXT))
    assert named <= {name.upper() for name in Settings.model_fields}
