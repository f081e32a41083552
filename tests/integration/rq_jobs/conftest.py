"""The handler of RQ's jobs reads the prefix of the keys when it is imported, as an executor's does."""

from __future__ import annotations

import pytest

from tests.support import one_slot

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("KEY_PREFIX", one_slot.PREFIX)
    import firmq.worker.features.rq.handler  # noqa: F401
