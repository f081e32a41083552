"""The fixtures of the parts on which durable functions work."""

from tests.integration.client.conftest import client, client_class, running
from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import gateway, make_gateway

__all__ = [
    "browser",
    "client",
    "client_class",
    "gateway",
    "make_gateway",
    "open_browser",
    "running",
    "store",
    "system",
]
