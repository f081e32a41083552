"""The command of the doctor."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(commands="firmq.shared.features.doctor.commands:COMMANDS")
