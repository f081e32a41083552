"""Durable functions have no housekeeping of their own: sleepers wait and are woken as scheduled tasks."""

from __future__ import annotations

from firmq.worker.feature import Feature

FEATURE = Feature()
