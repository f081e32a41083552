"""The timeline reads what others store: it has no keys, jobs or settings."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature()
