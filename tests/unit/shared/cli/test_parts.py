"""The commands that start parts."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module

import pytest

from firmq.__main__ import main
from firmq.shared.cli.command import Command
from firmq.shared.cli.parts import COMMANDS


def test_a_part_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "gateway", Command("no_such_package.serve", "gateway", "start a gateway"))
    assert main(["gateway"]) == 2
    assert capsys.readouterr().err == (
        "firmq gateway needs no_such_package, which is not installed: pip install 'firmq[gateway]'\n"
    )


def test_a_module_of_our_own_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "gateway", Command("firmq.no_such_module", "gateway", "start a gateway"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["gateway"])


def test_each_command_has_a_module_and_an_extra() -> None:
    for command in COMMANDS.values():
        assert callable(getattr(import_module(command.module), command.function))
        assert command.extra in {"gateway", "worker", "dashboard", "local", "sqlalchemy"}


@pytest.mark.parametrize("part", [each for each in ("worker", "dev") if each in COMMANDS])
def test_modules_may_be_given_as_arguments(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_MODULES", "other")
    changed = replace(COMMANDS[part], module="builtins", function="id", arguments=lambda wanted: [wanted])
    monkeypatch.setitem(COMMANDS, part, changed)
    main([part, "shop.tasks", "shop.mail"])
    assert os.environ["TASK_MODULES"] == "shop.tasks,shop.mail"


def test_the_concurrency_of_a_worker_counts_plain_and_async_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORKER_EXECUTORS", "EXECUTOR_SLOTS", "WORKER_QUEUES"):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(COMMANDS, "worker", replace(COMMANDS["worker"], module="builtins", function="bool"))
    main(["worker", "--concurrency", "10", "--queues", "critical=6,low=1"])
    assert os.environ["WORKER_EXECUTORS"] == os.environ["EXECUTOR_SLOTS"] == "10"
    assert os.environ["WORKER_QUEUES"] == "critical=6,low=1"


def test_help_lists_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"    {name}" in listed for name in COMMANDS)
