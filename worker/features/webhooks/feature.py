"""The handler that makes deliveries."""

from __future__ import annotations

from firmq.worker.feature import Feature

FEATURE = Feature()
