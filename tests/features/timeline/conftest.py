"""The fixtures of the parts that show the timeline."""

from tests.integration.conftest import system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import gateway, make_gateway
from tests.integration.partitions.conftest import cluster, routed, three

__all__ = ["browser", "cluster", "gateway", "make_gateway", "open_browser", "routed", "system", "three"]
