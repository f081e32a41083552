"""The keys of a system without a prefix, as most tests have it."""

from __future__ import annotations

from taskqueue.shared.redis.keys import with_prefix

keys = with_prefix("")
