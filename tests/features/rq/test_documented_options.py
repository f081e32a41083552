"""The page on moving from RQ says what each option of `rq worker` means with the worker class."""

from __future__ import annotations

import pytest
from rq.cli.cli import main

from tests.support.harness import ROOT

OPTIONS = [each for each in main.commands["worker"].params if each.name not in ("queues", "worker_class")]
PAGE = ROOT / "docs/guides/moving-from-rq.md"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_the_page_names_each_option_of_rq_worker(option: object) -> None:
    page = PAGE.read_text()
    assert any(f"`{name}`" in page or f"`{name} " in page for name in option.opts), option  # type: ignore[attr-defined]
