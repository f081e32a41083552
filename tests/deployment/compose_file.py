"""docker-compose.yml as Docker Compose reads it, variables filled in, without an engine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import compose

from tests.support.harness import ROOT

COMPOSE = Path(str(compose.__file__)).parent / "docker-compose"
"""The program itself: the package's own way to start it hides how it ended."""
PASSWORDS = {"REDIS_PASSWORD": "for-a-test", "GRAFANA_PASSWORD": "for-a-test"}
TEXT = (ROOT / "docker-compose.yml").read_text()
DEFAULTS = ROOT / "shared" / "compose"
"""Settings of the parts that differ under Compose."""
_TEXTS = [TEXT, *(each.read_text() for each in DEFAULTS.glob("*.env"))]
VARIABLES = frozenset(re.findall(r"(?<!\$)\$\{(\w+)", "\n".join(_TEXTS)))
"""What a person may set in .env."""


def read(
    files: Sequence[str] = ("docker-compose.yml",),
    environment: Mapping[str, str] = PASSWORDS,
    env_file: Path = Path("/dev/null"),
    folder: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """`docker compose config` of all services, those of profiles too; a .env of the checkout stays out of it.

    What it prints is a compose file again, so every $ in it is written twice.
    """
    chosen = [part for file in files for part in ("-f", file)]
    return subprocess.run(
        [COMPOSE, "--env-file", str(env_file), *chosen, "--profile", "*", "config", "--format", "json"],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@cache
def services() -> dict[str, dict[str, Any]]:
    """Every service."""
    done = read()
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["services"]
    return found


PARTS = ("gateway", "worker", "housekeeper", "dashboard")
"""The services that are ours."""


def seconds(duration: str) -> float:
    """Of a duration as Compose writes it: `1m30s`."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([hms])", duration))
