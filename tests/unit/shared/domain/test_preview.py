"""One line about the data of a task: what it shows, and that it stays short."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.domain.preview import LONGEST, PreviewError, check_template, preview

DATA = {"order": 17, "customer": {"name": "Ada"}, "paid": True, "lines": [{"sku": "a"}], "note": None}


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("order {order} for {customer.name}", "order 17 for Ada"),
        ("{paid} {lines.0.sku} {note} {nothing.at.all}", "true a – –"),
        ("{customer}", '{"name": "Ada"}'),
        (None, "order: 17, paid: true"),
    ],
)
def test_data_is_shown_by_template_or_by_its_first_fields(template: str | None, line: str) -> None:
    assert preview(DATA, template) == line


@pytest.mark.parametrize(("data", "line"), [("text", "text"), (3, "3"), (None, ""), ([1, 2], "[1, 2]"), ({}, "")])
def test_data_that_is_no_object_is_shown_as_it_is(data: Any, line: str) -> None:
    assert preview(data) == line


@pytest.mark.parametrize("template", [None, "{a}{a}{a}"])
def test_a_line_is_bounded(template: str | None) -> None:
    assert len(preview({"a": "x" * 100_000, "b" * 100_000: 1}, template)) == LONGEST


@pytest.mark.parametrize("template", ["", "a" * 201, "{", "{}", "{a!r}", "{a.__class__()}", "{a[0]}", "}{", 3])
def test_a_template_that_cannot_be_used_is_refused(template: Any) -> None:
    with pytest.raises(PreviewError):
        check_template(template)
