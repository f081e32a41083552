"""The units for systemd and the Procfile in examples/: they start commands that are there and give them time to end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from firmq.dashboard import serve as dashboard_server
from firmq.gateway import serve as gateway_server
from firmq.shared.cli.parts import COMMANDS
from firmq.shared.config.settings import Settings
from tests.deployment.manifests import OURS
from tests.support.harness import ROOT

EXAMPLES = ROOT / "examples"
UNITS = sorted((EXAMPLES / "systemd").glob("*.service"))
PAGE = (ROOT / "docs" / "deploy" / "processes.md").read_text()
EVERY_UNIT = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    parser.read(path)
    return parser


def part_of(path: Path) -> str:
    return re.sub(r"firmq-(\w+)@?\.service", r"\1", path.name)


def test_every_part_has_a_unit_and_a_line_of_the_procfile() -> None:
    assert {part_of(path) for path in UNITS} == set(OURS)
    lines = dict(line.split(": ") for line in (EXAMPLES / "Procfile").read_text().splitlines())
    assert lines == {part: f"firmq {part}" for part in OURS}


@EVERY_UNIT
def test_a_unit_starts_its_part_and_stops_with_the_target(path: Path) -> None:
    told = unit(path)
    command = told["Service"]["ExecStart"].split()
    assert command == ["/opt/firmq/.venv/bin/firmq", part_of(path)]
    assert command[1] in COMMANDS
    assert told["Unit"]["PartOf"] == "firmq.target"
    assert told["Service"]["RestartPreventExitStatus"] == "2", "of a wrong setting"


@EVERY_UNIT
def test_a_unit_leaves_its_part_the_time_that_it_takes_to_end(path: Path) -> None:
    settings = Settings()
    needed = {
        "gateway": settings.shutdown_delay + gateway_server.DRAIN_SECONDS,
        "dashboard": settings.shutdown_delay + dashboard_server.DRAIN_SECONDS,
        "worker": settings.drain_grace + settings.kill_grace + 10,
        "housekeeper": 10,
    }[part_of(path)]
    assert int(unit(path)["Service"]["TimeoutStopSec"].removesuffix("s")) > needed
    assert unit(path)["Service"]["KillMode"] == "mixed", "executors end when their worker says so"


@pytest.fixture
def units(tmp_path: Path) -> dict[str, Path]:
    """The units as systemd reads them, with the commands of this checkout, by part."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    found = {}
    for path in (*UNITS, EXAMPLES / "systemd" / "firmq.target"):
        copy = tmp_path / path.name.replace("@.", "@9110.")
        copy.write_text(path.read_text().replace("/opt/firmq/.venv/bin/firmq", sys.executable))
        found[part_of(path)] = copy
    return found


def analyze(*arguments: str | Path) -> str:
    """Runs systemd-analyze, which reads files only. Returns what it says."""
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=Path("/")
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_systemd_understands_every_line_of_the_units(units: dict[str, Path]) -> None:
    said = analyze("verify", "--man=no", *units.values())
    assert not [line for line in said.splitlines() if "firmq" in line]
    wrong = units["worker"].with_name("firmq-wrong.service")
    wrong.write_text(units["worker"].read_text().replace("ProtectSystem", "ProtectSystems"))
    assert "ProtectSystems" in analyze("verify", "--man=no", wrong)


def test_a_unit_exposes_little(units: dict[str, Path]) -> None:
    """systemd's own judgement, from 0 to 10: "OK" ends at 5, "medium" at 7; a service without settings has 9.6."""
    for part in OURS:
        analyze("security", "--offline=true", "--threshold=35", "--no-pager", units[part])


def test_the_page_names_every_unit() -> None:
    for path in UNITS:
        assert path.stem in PAGE
