"""The settings, the command and the placement of partitions."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(
    settings="firmq.shared.features.partitions.settings:PartitionSettings",
    submissions="firmq.shared.features.partitions.placement:Submissions",
    commands="firmq.shared.features.partitions.commands:COMMANDS",
)
