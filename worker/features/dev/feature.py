"""Nothing for workers and housekeepers: `firmq run` is a command."""

from __future__ import annotations

from firmq.worker.feature import Feature

FEATURE = Feature()
