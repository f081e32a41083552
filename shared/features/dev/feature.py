"""The commands for developers."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(commands="firmq.shared.features.dev.commands:COMMANDS")
