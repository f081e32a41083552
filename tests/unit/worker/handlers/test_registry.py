"""Registering handlers, and the two example types."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from firmq.shared.config.settings import Settings
from firmq.worker.handlers.context import current_task, progress, report_progress
from firmq.worker.handlers.examples.calculate import calculate
from firmq.worker.handlers.examples.process import NothingToProcess, process
from firmq.worker.handlers.registry import Handler, HandlerError, Registry, load, task
from firmq.worker.handlers.signals import GiveUp, RetryLater


def registered(function: Any, name: str = "it", **options: Any) -> Handler:
    registry = Registry()
    task(name, registry=registry, **options)(function)
    return registry.handlers[name]


def test_parameters_become_the_members_of_an_object() -> None:
    def resize(url: str, width: int = 100) -> None: ...

    handler = registered(resize)
    assert handler.schema["required"] == ["url"]
    assert handler.schema["properties"]["width"]["type"] == "integer"
    assert handler.schema["additionalProperties"] is False
    assert handler.read(b'{"url": "a"}') == {"url": "a", "width": 100}


def test_a_single_parameter_named_data_takes_the_whole_value() -> None:
    def anything(data: list[int]) -> None: ...

    assert registered(anything).read(b"[1, 2]") == [1, 2]


def test_a_dataclass_arrives_as_one() -> None:
    @dataclass
    class Order:
        id: int

    def ship(data: Order) -> None: ...

    ship.__annotations__["data"] = Order
    assert registered(ship).read(b'{"id": 3}') == Order(3)


def test_data_that_does_not_fit_is_refused() -> None:
    def resize(url: str) -> None: ...

    with pytest.raises(ValidationError):
        registered(resize).read(b'{"url": 3, "more": 1}')


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 101, "a/b", 'a"b'])
def test_a_name_that_would_not_fit_a_url_or_a_key_is_refused(name: str) -> None:
    with pytest.raises(HandlerError):
        registered(lambda: None, name)


def test_two_functions_cannot_share_a_name() -> None:
    registry = Registry()
    task("same", registry=registry)(test_two_functions_cannot_share_a_name)
    with pytest.raises(HandlerError, match="two handlers"):
        task("same", registry=registry)(test_what_json_cannot_carry_is_refused_when_it_is_registered)


def test_what_json_cannot_carry_is_refused_when_it_is_registered() -> None:
    def takes_anything(*args: int) -> None: ...

    with pytest.raises(HandlerError, match="named parameters"):
        registered(takes_anything)


@pytest.mark.parametrize("name", ["_order", "model_config", "model_dump"])
def test_a_parameter_that_pydantic_reserves_is_named(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def reserved({name}: str) -> None: ...", scope)  # one function for each name
    with pytest.raises(HandlerError, match=name):
        registered(scope["reserved"])


@pytest.mark.filterwarnings("error")
def test_parameters_may_have_the_names_of_a_models_methods() -> None:
    def export(schema: str, json: int, copy: bool = False) -> None: ...

    assert registered(export).read(b'{"schema": "a", "json": 1}') == {"schema": "a", "json": 1, "copy": False}


def test_a_secret_is_read_and_never_written_as_asterisks() -> None:
    def sign_in(tokens: list[SecretStr]) -> None: ...

    sign_in.__annotations__["tokens"] = list[SecretStr]
    handler = registered(sign_in)
    assert handler.read(b'{"tokens": ["a"]}')["tokens"][0].get_secret_value() == "a"
    with pytest.raises(TypeError, match="a secret would be stored as asterisks: declare it as str"):
        handler.write([SecretStr("a")])


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(HandlerError, match="module no_such_module cannot be imported"):
        load(["no_such_module"])


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("shop/jobs.py", "is a file: give the name of the module, shop.jobs"),
        ("./shop/", "is a file: give the name of the module, shop"),
        ("src/shop/tasks.py", "the name of the module, shop.tasks; it is in src: set PYTHONPATH=src"),
        ("shop.jobs:double", "names a function: give the name of the module, shop.jobs"),
        ("shop.tasks", "or elsewhere on Python's path; it is in src: set PYTHONPATH=src"),
        ("shop.job", "no module named 'shop.job' in "),
        ("shop.jobs", "No module named 'no_such_package'"),
    ],
)
def test_what_is_no_module_is_answered_with_what_to_write(
    module: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("src/shop/tasks.py", "shop/jobs.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(HandlerError, match=re.escape(advice)):
        load([module])


def test_a_module_of_the_project_does_not_hide_one_of_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "email.py").write_text("raise RuntimeError")
    (tmp_path / "jobs.py").write_text("import email.message\nprint(email.__name__)")
    code = "from firmq.worker.handlers.registry import load; load(['jobs'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("email\n", "")


def test_outside_of_a_handler_progress_is_nothing_and_the_task_unknown() -> None:
    report_progress(0.5)
    asyncio.run(progress(0.5))
    with pytest.raises(RuntimeError):
        current_task()


def test_awaited_progress_gives_others_a_turn() -> None:
    async def handler() -> list[str]:
        seen: list[str] = []
        other = asyncio.create_task(turn(seen))
        await progress(0.5, "rendering")
        seen.append("handler")
        await other
        return seen

    async def turn(seen: list[str]) -> None:
        seen.append("other")

    assert asyncio.run(handler()) == ["other", "handler"]


def test_retry_later_needs_a_delay_that_can_be_waited_for() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        RetryLater(-1)


def test_process_counts_a_text() -> None:
    result = process("to be\nor not to be")
    assert (result["words"], result["lines"], result["different_words"]) == (6, 2, 4)
    assert dict(result["commonest"])["be"] == 2


def test_process_reads_every_text_in_json() -> None:
    assert process({"title": "a b", "tags": ["c", 1, None, True]})["words"] == 6


@pytest.mark.parametrize("data", ["", " \n", [], {}, None, True])
def test_process_fails_on_what_holds_no_word(data: Any) -> None:
    with pytest.raises(NothingToProcess):
        process(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (999, "999"),
        (0.1, "1/10"),
        ("0.1 + 0.2", "3/10"),
        ("1/3 + 2 ** 10", "3073/3"),
        ("-(7 // 2) % 4", "1"),
        ("2 ** -2", "1/4"),
    ],
)
def test_calculate_is_exact(data: Any, value: str) -> None:
    result = calculate(data)
    assert result["value"] == value
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_calculate_names_the_factors_of_a_whole_number() -> None:
    assert calculate(999)["factors"] == [3, 3, 3, 37]


def test_calculate_fails_on_a_division_by_zero() -> None:
    with pytest.raises(ZeroDivisionError):
        calculate("1 / 0")


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "__import__('os')", "a", "'x' * 3", "True", "9 ** 9 ** 9", "2 ** 0.5", "(" * 500, "1" * 20_000, "[1]"],
)
def test_calculate_gives_up_on_what_is_no_arithmetic(text: str) -> None:
    with pytest.raises(GiveUp) as said:
        calculate(text)
    assert "<unknown>" not in str(said.value), "there is no file to name"


def test_a_preview_is_an_annotation_of_the_schema() -> None:
    registry = Registry()

    @task("pay", preview="order {order}", registry=registry)
    def pay(order: int) -> None: ...

    published = registry.handlers["pay"].published(Settings())
    assert published.schema["x-preview"] == "order {order}"
    assert "preview" not in json.loads(published.entry)
    with pytest.raises(HandlerError, match="single brace"):
        task("other", preview="order {", registry=registry)(lambda order: None)
