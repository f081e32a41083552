"""The fixtures of the parts in which users sign in and send keys."""

from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import make_gateway

__all__ = ["browser", "make_gateway", "open_browser", "store", "system"]
