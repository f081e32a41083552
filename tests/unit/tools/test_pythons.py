"""The supported versions of Python are the same wherever they are named."""

from __future__ import annotations

import re
import tomllib

from tests.support.harness import ROOT

TOLD = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLASSIFIED = re.findall(r"Python :: (3\.\d+)", str(TOLD["project"]["classifiers"]))


def test_each_supported_version_is_tested() -> None:
    [tested] = re.findall(r"^SUPPORTED = \((.*)\)$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert re.findall(r"3\.\d+", tested) == CLASSIFIED
    assert TOLD["project"]["requires-python"] == f">={CLASSIFIED[0]}"


def test_make_finds_each_supported_version() -> None:
    [looked_for] = re.findall(r"^PYTHONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert looked_for.split() == [f"python{each}" for each in reversed(CLASSIFIED)] + ["python3"]
