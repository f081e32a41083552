"""The keys of a system without a prefix, as most tests have it; with TEST_ONE_SLOT=1, of a partition of a cluster."""

from __future__ import annotations

from firmq.shared.redis.keys import with_prefix
from tests.support import one_slot

keys = with_prefix(one_slot.PREFIX)
