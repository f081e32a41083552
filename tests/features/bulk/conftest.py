"""The fixtures of the parts on which bulk actions work."""

from tests.integration.client.conftest import running
from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.quarantine.conftest import scene

__all__ = ["browser", "open_browser", "running", "scene", "store", "system"]
