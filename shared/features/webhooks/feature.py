"""The scripts of deliveries."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature()
