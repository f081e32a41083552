"""The keys and the command of the outbox."""

from __future__ import annotations

from firmq.shared.features.outbox.keys import OutboxKeys
from firmq.shared.registry import Feature

FEATURE = Feature(keys=OutboxKeys, commands="firmq.shared.features.outbox.commands:COMMANDS")
