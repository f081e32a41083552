"""Spans come out of the pipe as they went in, and a flood of them is cut off."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanKind, StatusCode

from firmq.worker.executors.recorder import MOST_KEPT, Recorder
from firmq.worker.executors.span_pipe import LARGEST, MOST_SENT, SpanWriter, unpack


class Colour(StrEnum):
    RED = "red"


class Pipe:
    """A provider whose spans end in a list of bytes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.writer = SpanWriter(self.sent.append)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.writer)
        self.ours, self.theirs = self.provider.get_tracer("firmq"), self.provider.get_tracer("shop", "2")


def recorder() -> Recorder:
    return Recorder(1, 1000, lambda *_: None, lambda *_: None)


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def test_everything_about_a_span_comes_out_again(pipe: Pipe) -> None:
    parent = pipe.theirs.start_span("parent")
    about: Any = {"text": "é", "number": 2, "share": 0.5, "yes": True, "many": ("a", "b"), "colour": Colour.RED}
    link = Link(parent.get_span_context(), {"why": "retry"})
    context = trace.set_span_in_context(parent)
    span = pipe.theirs.start_span("child", context, SpanKind.CLIENT, attributes=about, links=[link])
    span.add_event("half", {"done": 0.5}, 5)
    span.set_status(StatusCode.ERROR, "no")
    span.end()
    found = unpack(pipe.sent[0], pipe.provider.resource)
    assert found.to_json() == span.to_json()  # type: ignore[attr-defined]
    assert found.instrumentation_scope == span.instrumentation_scope  # type: ignore[attr-defined]


def test_a_flood_of_a_handlers_spans_is_cut_off_but_never_the_span_of_its_attempt(pipe: Pipe) -> None:
    for _ in range(MOST_SENT + 500):
        pipe.theirs.start_span("again").end()
    pipe.ours.start_span("process flood").end()
    assert len(pipe.sent) == MOST_SENT + 1
    assert unpack(pipe.sent[-1], pipe.provider.resource).name == "process flood"


def test_only_the_first_spans_of_the_running_task_are_kept_with_its_attempt(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, ended = recorder(), recorder()
    for each in (ours, ended):
        pipe.writer.begin(each)
    ended.ended = True
    for running in (ended, ours):
        monkeypatch.setattr("firmq.worker.executors.span_pipe.of_current_task", lambda running=running: running)
        for number in range(MOST_KEPT + 8):
            pipe.theirs.start_span(f"GET {number}", attributes={"url.full": "http://shop/x?key=secret"}).end()
    assert ended.spans
    assert ended.spans.summary() == {}
    assert ours.spans
    summary = ours.spans.summary()
    assert [each["name"] for each in summary["spans"]] == [f"GET {number} shop/x" for number in range(MOST_KEPT)]
    assert summary["spans_left_out"] == 8


def test_a_span_with_an_invalid_address_does_not_fail_its_handler(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = recorder()
    pipe.writer.begin(ours)
    monkeypatch.setattr("firmq.worker.executors.span_pipe.of_current_task", lambda: ours)
    pipe.theirs.start_span("GET", attributes={"url.full": "http://[shop/x"}).end()
    assert ours.spans
    assert [each["name"] for each in ours.spans.summary()["spans"]] == ["GET"]
    assert len(pipe.sent) == 1


@pytest.mark.parametrize("value", ["x" * LARGEST, 10**5000], ids=["large", "many digits"])
def test_a_span_that_does_not_fit_is_left_out(pipe: Pipe, value: Any) -> None:
    pipe.theirs.start_span("odd", attributes={"value": value}).end()
    pipe.theirs.start_span("next").end()
    assert [unpack(each, pipe.provider.resource).name for each in pipe.sent] == ["next"]


def test_half_a_surrogate_pair_is_replaced_because_the_exporter_would_drop_all_spans_beside_it(pipe: Pipe) -> None:
    pipe.theirs.start_span("a\ud800b", attributes={"text": "\udfff"}).end()
    found = unpack(pipe.sent[0], pipe.provider.resource)
    assert (found.name, found.attributes) == ("a?b", {"text": "?"})
