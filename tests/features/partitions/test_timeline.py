"""The timelines of several partitions are shown as one."""

from __future__ import annotations

from tests.features.partitions.conftest import Routed


def test_the_timeline_in_markdown_is_one_list(routed: Routed) -> None:
    for queue in ("normal", "low"):
        routed.post(f"/queues/{queue}/pause", {"reason": f"stop {queue}"})
    text = routed.http.get("/timeline.md").text
    assert text.count("# Timeline from") == 1
    events = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(events) == len(set(events)) >= 2
    assert events == sorted(events)
    assert "Nothing happened" not in text
