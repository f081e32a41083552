"""Frames survive any cut of the stream, and bytes that are none are an error as soon as they arrive."""

from __future__ import annotations

import pytest

from firmq.worker.executors.ipc import CorruptFrame, FrameReader, frame

VALUES = [("outcome", 1, b"x" * 1000), ("log", 2, "ä"), ("progress", 3, b"")]


@pytest.mark.parametrize("step", [1, 3, 11, 13, 500, 10_000])
def test_a_stream_may_be_cut_anywhere(step: int) -> None:
    stream = b"".join(map(frame, VALUES))
    reader = FrameReader()
    parts = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [value for part in parts for value in reader.feed(part)] == VALUES


@pytest.mark.parametrize("stray", [b"s", b"\0", b"\0\0\0\0", b"stray text\n", b"\xf1tq\x01" + b"\xff" * 8])
@pytest.mark.parametrize("before", [0, 1])
def test_stray_bytes_are_an_error_at_once(stray: bytes, before: int) -> None:
    reader = FrameReader()
    with pytest.raises(CorruptFrame):
        list(reader.feed(frame(VALUES[0]) * before + stray))


def test_stray_bytes_inside_of_a_frame_are_not_unmarshalled() -> None:
    whole = frame(VALUES[0])
    with pytest.raises(CorruptFrame, match="a wrong checksum"):
        list(FrameReader().feed(whole[:500] + b"stray" + whole[500:]))


def test_a_frame_over_the_bound_is_an_error_before_it_is_complete() -> None:
    whole = frame(("outcome", 1, b"x" * 2000))
    with pytest.raises(CorruptFrame, match="exceeds the maximum of 1000"):
        list(FrameReader(1000).feed(whole[:20]))
