"""An environment for each system, made once from its pinned requirements and kept until those change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.labs.bench.errors import BenchError

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = ROOT / ".bench"
SYSTEMS = HERE / "systems"
REQUIREMENTS = HERE / "requirements"
INSTALL_SECONDS = 600


def known_systems() -> list[str]:
    """An adapter file is all it takes to be one."""
    return sorted(path.stem for path in SYSTEMS.glob("*.py") if not path.stem.startswith("_"))


def interpreter(system: str) -> Path:
    """The Python of the system's environment, which is made if it is missing or out of date."""
    wanted = REQUIREMENTS / f"{system}.txt"
    home = CACHE / "environments" / system
    python, mark, print_ = home / "bin" / "python", home / "made-from", fingerprint(wanted)
    if not (mark.exists() and mark.read_text() == print_ and python.exists()):
        make(home, python, wanted)
        mark.write_text(print_)
    return python


def fingerprint(requirements: Path) -> str:
    """Of everything the environment depends on: the pins, included files too, and the interpreter."""
    return hashlib.sha256(f"{sys.version}\n{expanded(requirements)}".encode()).hexdigest()


def expanded(requirements: Path) -> str:
    """The text of a requirements file with every `-r` line replaced by what it names."""
    if not requirements.exists():
        raise BenchError(f"not installed: {requirements.name} is missing")
    lines = []
    for line in requirements.read_text().splitlines():
        included = line.removeprefix("-r ").strip() if line.startswith("-r ") else None
        lines.append(expanded(requirements.parent / included) if included else line)
    return "\n".join(lines)


def make(home: Path, python: Path, requirements: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(home)])
    run([str(python), "-m", "pip", "install", "--quiet", "--no-input", "-r", str(requirements)])


def run(command: list[str]) -> None:
    """In the benchmark's own process group, so that Ctrl-C ends it as well."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"not installed: no end after {INSTALL_SECONDS} s") from error
    if done.returncode:
        words = " | ".join(line.strip() for line in done.stderr.splitlines()[-3:])
        raise BenchError(f"not installed: {words}")
