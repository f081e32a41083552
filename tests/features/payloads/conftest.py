"""The fixtures of the parts that write and read payloads."""

from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.gateway.conftest import gateway, make_gateway
from tests.integration.submission.conftest import loop, make_queue, submitter_url

__all__ = [
    "browser",
    "gateway",
    "loop",
    "make_gateway",
    "make_queue",
    "open_browser",
    "store",
    "submitter_url",
    "system",
]
