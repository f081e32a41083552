"""The fixtures of the parts that show the timeline."""

from tests.integration.conftest import system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import gateway, make_gateway

__all__ = ["browser", "gateway", "make_gateway", "open_browser", "system"]
