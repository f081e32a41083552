"""The versions of RQ that are supported: the installed one, and others in folders of their own."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

VERSIONS = ("2.12.0", "3.0.0")
_FOLDERS = Path(__file__).resolve().parents[2] / ".bench" / "rq"


@cache
def environment(wanted: str) -> dict[str, str]:
    """What makes a process import this version of RQ. Skips the test where it cannot be had."""
    if version("rq") == wanted:
        return {}
    folder = _FOLDERS / wanted
    if not (folder / "rq").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        said = subprocess.run([*command, f"rq=={wanted}"], capture_output=True, text=True, timeout=120, check=False)
        if said.returncode:
            pytest.skip(f"rq {wanted} cannot be installed here: {said.stderr[-200:]}")
    return {"PYTHONPATH": str(folder)}
