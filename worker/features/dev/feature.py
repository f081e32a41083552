"""Adds nothing to workers and housekeepers: this folder has the command `firmq run`."""

from __future__ import annotations

from firmq.worker.feature import Feature

FEATURE = Feature()
