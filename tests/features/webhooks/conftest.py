"""The fixtures of the parts that create, make and show deliveries."""

from tests.integration.conftest import limits, store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import gateway, make_gateway

__all__ = ["browser", "gateway", "limits", "make_gateway", "open_browser", "store", "system"]
