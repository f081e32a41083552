"""What the README says is so: its walk-through runs, its tables are the code's, the tests that it names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance import readme
from tests.acceptance.running import Product, product
from tests.harness import ROOT

TEXT = readme.README.read_text()
TEN = (
    "task_submissions_total",
    "task_completions_total",
    "task_duration_seconds",
    "task_retries_total",
    "tasks_in_dlq_total",
    "active_workers_total",
    "pending_tasks_total",
    "retry_tasks_total",
    "task_failures_total",
    "worker_errors_total",
)
"""The metrics of the deployment guide."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("readme")) as up:
        yield up


def walk_through() -> Iterator[tuple[str, str]]:
    """Commands and the answers shown for them."""
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL):
        for part in block.split("$ ", 1)[1].split("\n$ "):
            command, _, shown = part.partition("\n")
            yield command, shown.strip()


def test_the_walk_through_gives_the_answers_that_are_shown(running: Product) -> None:
    task_id = ""
    steps = list(walk_through())
    assert len(steps) >= 9
    for command, shown in steps:
        there = command.replace("localhost:8000", f"127.0.0.1:{running.ports['GATEWAY_PORT']}")
        there = there.replace(".venv/bin/taskqueue", f"{sys.executable} -m shared.cli")
        done = subprocess.run(
            ["bash", "-c", there],
            env={"TASK_ID": task_id, "PATH": "/usr/bin:/bin", "TASKQUEUE_URL": running.url},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        pattern = "".join(".*?" if part == "…" else re.escape(part) for part in re.split("(…)", shown))
        open_end = shown.endswith("…")
        assert re.fullmatch(pattern + (".*" if open_end else ""), done.stdout.strip(), re.DOTALL), (
            f"{command}\n  shown: {shown}\n  got:   {done.stdout}"
        )
        if found := re.match(r'\{"task_id":"(\w+)","status":"pending","type"', done.stdout):
            task_id = found[1]


@pytest.mark.parametrize("at", [0, 1])
def test_the_clients_in_the_readme_print_what_is_shown(running: Product, at: int) -> None:
    blocks = re.findall(r"```python\n(from (?:shared\.client|worker\.local).*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    shown = re.findall(r"print\(.*\)  # (.*)", blocks[at])
    code = blocks[at].replace("http://localhost:8000", running.url)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) >= len(shown)
    for expected, line in zip(shown, lines, strict=False):
        assert expected in ("…", line)


def test_the_table_of_settings_is_the_codes() -> None:
    assert readme.section(TEXT, "settings") == readme.settings_table()


def test_the_table_of_endpoints_is_the_codes(running: Product) -> None:
    assert readme.section(TEXT, "endpoints") == readme.endpoints_table(running.api.get("/openapi.json").json())


def test_the_table_of_metrics_is_what_a_running_system_shows(running: Product) -> None:
    readme.exercise(running.api)
    assert readme.section(TEXT, "metrics") == readme.metrics_table(running.api.get("/metrics").text)


def test_the_ten_metrics_of_the_reference_are_on_the_gateways_page(running: Product) -> None:
    readme.exercise(running.api)
    page = running.api.get("/metrics").text
    for name in TEN:
        assert re.search(rf"^{name}(_bucket)?[ {{]", page, re.MULTILINE), name


def test_looking_for_task_on_the_gateways_page_finds_all_ten(running: Product) -> None:
    """The command of the deployment guide; those whose name does not hold the word say it in their help."""
    readme.exercise(running.api)
    command = "curl -s http://localhost:8000/metrics | grep task_"
    there = command.replace("localhost:8000", f"127.0.0.1:{running.ports['GATEWAY_PORT']}")
    found = subprocess.run(["bash", "-c", there], capture_output=True, text=True, timeout=30, check=True).stdout
    for name in TEN:
        assert re.search(rf"^(# HELP )?{name}\b", found, re.MULTILINE), name


def test_every_test_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT)) - {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    defined = {
        name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert named
    assert named <= defined, named - defined


def test_every_promise_of_the_readme_names_a_test() -> None:
    promises = re.findall(r"^\| .*$", TEXT.split("## What it promises")[1].split("\n## ")[0], re.MULTILINE)
    assert len(promises) > 20
    assert [line for line in promises[2:] if "`test_" not in line] == []


@pytest.mark.parametrize("path", ["README.md", "worker/README.md", "shared/README.md"])
def test_files_that_a_readme_links_to_exist(path: str) -> None:
    folder = (ROOT / path).parent
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / path).read_text()):
        assert (folder / target).exists(), target


@pytest.mark.parametrize("folder", ["worker", "shared", "gateway", "dashboard"])
def test_the_readme_of_a_folder_names_the_files_that_are_there(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    there = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not there - named, f"{folder}/README.md does not name {there - named}"
    for name in named:
        assert (ROOT / folder / name).exists() or (ROOT / name).exists(), f"{folder}/README.md: there is no {name}"
