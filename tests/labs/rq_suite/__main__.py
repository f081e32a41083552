"""`python -m tests.labs.rq_suite`: runs RQ's own tests with our worker class; status 1 when one that applies failed.

The tests come from the source distribution of the installed RQ, or from a checkout: `--source PATH`. Nothing of them is
kept. `not_applicable.txt` lists tests by patterns of their ids, each with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from rq.version import VERSION

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support.harness import ROOT

HERE = Path(__file__).parent
NOT_APPLICABLE = HERE / "not_applicable.txt"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.rq_suite", description=__doc__)
    parser.add_argument("--source", type=Path, help="a checkout of RQ (default: the source distribution)")
    parser.add_argument("--version", default=VERSION, help=f"of the source distribution (default: {VERSION})")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files of tests (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rq-suite-") as name:
        folder = Path(name)
        source = options.source or fetched(options.version, folder)
        outcomes = run(source.resolve(), folder, options.tests)
    print(f"RQ's tests with firmq.rq.Worker, of {source.name}: {summary(outcomes)}")
    for each in failed(outcomes):
        print(f"failed: {each['id']}\n  {each['reason'].strip().splitlines()[-1] if each['reason'] else ''}")
    return 1 if failed(outcomes) or not outcomes else 0


def fetched(version: str, folder: Path) -> Path:
    """Returns the unpacked source distribution."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "rq", f"rq=={version}"]
    subprocess.run([*pip, "-d", str(folder)], check=True)
    [archive] = folder.glob("rq-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run(source: Path, folder: Path, tests: list[str]) -> list[dict[str, Any]]:
    """Runs the tests beside a Redis of their own; returns what became of each."""
    outcomes = folder / "outcomes"
    with EmbeddedRedis(data_dir=folder / "redis") as server:
        with connect(server.url) as redis:  # RQ's tests know no password
            redis.execute_command("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (source, HERE / "plugin", ROOT))),
            "RQ_SUITE_PORT": server.url.rpartition(":")[2].partition("/")[0],
            "RQ_SUITE_LIST": str(NOT_APPLICABLE),
            "RQ_SUITE_OUTCOMES": str(outcomes),
            "RUN_SLOW_TESTS_TOO": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "rq_suite_plugin", "-p", "no:cacheprovider", *tests]
        subprocess.run([*command, "-o", "addopts="], cwd=source, env=environment, check=False)
    return [json.loads(line) for line in outcomes.read_text().splitlines()] if outcomes.exists() else []


def failed(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the tests that failed."""
    return [each for each in outcomes if each["outcome"] == "failed"]


def summary(outcomes: list[dict[str, Any]]) -> str:
    """Returns how many passed, do not apply and failed."""
    skipped = [each["reason"] for each in outcomes if each["outcome"] == "skipped"]
    listed = sum("not applicable" in reason for reason in skipped)
    counts = Counter(each["outcome"] for each in outcomes)
    started = sum(each["worked"] and each["outcome"] == "passed" for each in outcomes)
    return (
        f"{counts['passed']} passed, {started} of them started a worker; {listed} not applicable, "
        f"{len(skipped) - listed} skipped by RQ, {counts['failed']} failed"
    )


if __name__ == "__main__":
    sys.exit(main())
