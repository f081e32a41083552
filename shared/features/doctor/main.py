"""`firmq doctor [--json]`: exits with status 0 if all is well, 1 on warnings, 2 on errors."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from firmq.shared.conditions.findings import Finding, Level, worst
from firmq.shared.config.settings import load_or_exit
from firmq.shared.domain.sanitize import plain
from firmq.shared.features.doctor.examination import examine
from firmq.shared.redis.client import connect

_MARKS = {Level.OK: "ok     ", Level.WARNING: "warning", Level.ERROR: "ERROR  "}


def main(arguments: Sequence[str] | None = None) -> int:
    """Examines the system that the settings name and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="firmq doctor", description="Examines a running system and reports required changes."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    wanted = parser.parse_args(arguments)
    settings = load_or_exit()
    findings: list[Finding] = []
    for number, each in settings.stores.items():
        with connect(each.store_url, timeout=2.0, check_format=False, name="doctor") as redis:
            found = examine(each, redis)
        label = settings.stores.label(number)
        findings += [replace(one, check=f"{label}: {one.check}") for one in found] if label else found
    try:
        print(as_json(findings) if wanted.json else as_text(findings), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
    return list(Level).index(worst(findings))


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({"status": worst(findings), "checks": [asdict(each) for each in findings]}, indent=2)


def as_text(findings: Sequence[Finding]) -> str:
    """Returns one line per finding, followed by its advice."""
    lines = []
    for each in findings:
        lines.append(f"{_MARKS[each.level]}  {each.check}: {each.seen}")
        if each.advice:
            lines.append(f"         -> {each.advice}")
    return plain("\n".join(lines))
