"""The output of a task, as `firmq stream` prints it."""

from __future__ import annotations

import io
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firmq.shared.cli.output import Output
from firmq.shared.cli.tasks import stream
from firmq.shared.client import Client


@pytest.mark.parametrize(
    ("chunks", "printed"),
    [
        (["one ", "two"], "one two\n"),
        (["one\n"], "one\n"),
        (["one", {"a": 1}], 'one{"a": 1}\n'),
        ([], ""),
        (["", ""], ""),
    ],
)
def test_a_stream_ends_with_one_newline(chunks: list[Any], printed: str) -> None:
    said = io.StringIO()
    client = SimpleNamespace(stream=lambda _: [SimpleNamespace(truncated=False, chunk=each) for each in chunks])
    stream(cast(Client, client), Namespace(id="a"), Output(said, as_json=False))
    assert said.getvalue() == printed
