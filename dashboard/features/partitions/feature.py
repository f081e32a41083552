"""The dashboard of several partitions."""

from __future__ import annotations

from firmq.dashboard.feature import Feature
from firmq.dashboard.features.partitions.app import PartitionedDashboard

FEATURE = Feature(name="partitions", serve=PartitionedDashboard)
