"""`firmq doctor` on the command line, and its page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from firmq.__main__ import main
from firmq.shared.cli.parts import COMMANDS
from tests.integration.client.conftest import Running
from tests.support.harness import ROOT


def test_options_of_the_client_may_stand_before_the_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "doctor", replace(COMMANDS["doctor"], module="builtins", function="print"))
    for arguments in (["doctor", "--json"], ["--json", "doctor"], ["--url", "not an address", "doctor"]):
        main(arguments)
    assert capsys.readouterr().out == "['--json']\n['--json']\n[]\n"


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", "| true"])
def test_an_output_that_cannot_be_written_is_no_traceback(redirection: str) -> None:
    command = f"REDIS_URL=redis://127.0.0.1:1/0 {sys.executable} -m firmq doctor {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_doctor_is_called(running: Running) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firmq", "--json", "doctor"],
        capture_output=True,
        cwd=ROOT,
        env={"REDIS_URL": running.system.url, "PATH": "/usr/bin:/bin"},
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1, 2)
    assert json.loads(done.stdout)["checks"]


def test_the_page_of_the_doctor_lists_every_check() -> None:
    code = "".join(path.read_text() for path in ROOT.glob("shared/features/*/*.py"))
    page = (ROOT / "docs" / "operate" / "doctor.md").read_text()
    assert set(re.findall(r'fine\(\s*"([a-z ]+)"', code)) <= set(re.findall(r"^\| ([a-z ]+) \|", page, re.MULTILINE))
