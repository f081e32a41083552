"""`firmq run`: one handler in the foreground of a terminal or a script."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firmq.__main__ import main
from tests.support.harness import ROOT

TASKS = """
import logging

from firmq import GiveUp, current_task, lock, progress, report_progress, task


@task("divide", max_retries=5)
def divide(by: int) -> float:
    print("dividing")
    logging.getLogger("shop").warning("a line of the log")
    return 1 / by


@task("inspect")
def inspect(data: object) -> dict[str, object]:
    with lock("report"):
        report_progress(0.5, "half")
    return {"type": current_task().type, "attempt": current_task().attempt, "data": data}


@task("wait")
async def wait(fail: bool = False) -> str:
    await progress(0.5)
    if fail:
        raise GiveUp("no use")
    return "waited"


@task("call", threads=True)
def call() -> str:
    return "called"


@task("stop")
def stop(number: int) -> int:
    breakpoint()
    return number


@task("stop-async")
async def stop_async(number: int) -> int:
    breakpoint()
    return number


@task("hopeless")
def hopeless() -> object:
    return object()


@task("exits")
def exits() -> None:
    raise SystemExit(7)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    return tmp_path


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS_", "TASK"))}
    return {**kept, "PYTHONPATH": str(ROOT), "REDIS_URL": "redis://127.0.0.1:1/0"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "firmq", "run", "--module", "shop_tasks", *words]


def run(project: Path, *words: str, stdin: str = "", status: int = 0) -> tuple[str, str]:
    """What it wrote on standard output and standard error."""
    done = subprocess.run(
        command(*words), cwd=project, env=environment(), input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["divide", "--data", '{"by": 2}'], 0.5),
        (["inspect", "--data", "plain text"], {"type": "inspect", "attempt": 1, "data": "plain text"}),
        (["inspect"], {"type": "inspect", "attempt": 1, "data": None}),
        (["wait", "--data", "{}"], "waited"),
        (["call", "--data", "{}"], "called"),
    ],
)
def test_the_result_is_all_of_standard_output(project: Path, words: list[str], result: object) -> None:
    out, err = run(project, *words)
    assert json.loads(out) == result
    assert ("dividing" in err) == ("a line of the log" in err) == (words[0] == "divide")


def test_data_comes_from_a_file_or_from_standard_input(project: Path) -> None:
    (project / "data.json").write_text('{"by": 4}')
    assert run(project, "divide", "--data", "@data.json")[0] == "0.25\n"
    assert run(project, "divide", "--data", "-", stdin='{"by": 8}')[0] == "0.125\n"
    assert "No such file" in run(project, "divide", "--data", "@missing.json", status=2)[1]


def test_an_error_is_shown_from_the_handler_on_and_is_not_retried(project: Path) -> None:
    out, err = run(project, "divide", "--data", '{"by": 0}', status=1)
    assert out == ""
    assert err.count("dividing") == 1
    [frame] = [line for line in err.splitlines() if line.startswith("  File")]
    assert "shop_tasks.py" in frame
    assert err.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["wait", "--data", '{"fail": true}'], "GiveUp: no use"),
        (["hopeless", "--data", "{}"], "which has no JSON form"),
        (["exits", "--data", "{}"], "SystemExit: 7"),
    ],
)
def test_any_failure_has_status_1(project: Path, words: list[str], text: str) -> None:
    assert text in run(project, *words, status=1)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["divide", "--data", '{"by": "x"}'], 'data.by: "x" is not of type "integer"'),
        (["divide"], "null is not of type"),
        (["multiply"], "name the module of its handler with --module"),
    ],
)
def test_unsuitable_data_and_unknown_types_have_status_3(project: Path, words: list[str], text: str) -> None:
    assert text in run(project, *words, status=3)[1]


def test_a_module_that_cannot_be_imported_has_status_2_and_shows_the_place(project: Path) -> None:
    (project / "shop_tasks.py").write_text("import no_such_package\n")
    err = run(project, "divide", status=2)[1]
    assert "module shop_tasks cannot be imported" in err
    assert 'shop_tasks.py", line 1' in err


def in_terminal(project: Path, *words: str, answers: list[tuple[str, str]]) -> str:
    """What a terminal shows when each answer is typed after the text before it."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        command(*words), cwd=project, env=environment(), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown, end = "", time.monotonic() + 60
    while time.monotonic() < end:
        if answers and answers[0][0] in shown:
            os.write(screen, f"{answers.pop(0)[1]}\n".encode())
        if select.select([screen], [], [], 0.1)[0]:
            try:
                shown += os.read(screen, 4096).decode()
            except OSError:  # the program has ended
                break
    process.wait(10)
    os.close(screen)
    assert not answers, shown
    return shown


@pytest.mark.parametrize("task", ["stop", "stop-async"])
def test_breakpoints_stop_at_a_terminal(project: Path, task: str) -> None:
    shown = in_terminal(
        project, task, "--data", '{"number": 1}', answers=[("(Pdb)", "number = 41 + 1"), ("41 + 1", "continue")]
    )
    assert shown.rstrip().endswith("42")


def test_pdb_opens_where_the_handler_raised(project: Path) -> None:
    shown = in_terminal(
        project,
        "divide",
        "--pdb",
        "--data",
        '{"by": 0}',
        answers=[("(Pdb)", "print('by is', by)"), ("by is 0", "quit")],
    )
    assert "-> return 1 / by" in shown


def test_a_file_that_is_not_text_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(b"\xff\xfe\x00")
    assert main(["run", "process", "--data", f"@{file}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("firmq: ")
    assert said.count("\n") == 1
