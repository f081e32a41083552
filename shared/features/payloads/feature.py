"""The stores of large payloads, their settings and their job."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature()
