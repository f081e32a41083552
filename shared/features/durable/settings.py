"""Bounds of what durable functions store with their tasks."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at


class DurableSettings(Group):
    """Bounds of what durable functions store with their tasks."""

    max_steps: int = at("limits.steps", 1000, "Maximum number of stored steps of a task.", ge=1, le=10_000)
    max_steps_bytes: int = at(
        "limits.steps_bytes", 1 << 20, "Maximum bytes of all step results of a task together.", ge=1024, le=64 << 20
    )
    max_output_bytes: int = at(
        "limits.output_bytes",
        1 << 20,
        "Maximum bytes of the output that a task emits; 32 bytes are added for each chunk.",
        ge=1024,
        le=64 << 20,
    )
