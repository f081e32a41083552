"""The handler of RQ's jobs reads the prefix of the keys when it is imported, as an executor's does."""

from __future__ import annotations

import pytest

from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import make_gateway
from tests.support import one_slot

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("KEY_PREFIX", one_slot.PREFIX)
    import firmq.worker.features.rq.handler  # noqa: F401

__all__ = ["browser", "make_gateway", "open_browser", "store", "system"]
