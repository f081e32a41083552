"""The fixtures of the parts on which bulk actions work."""

from tests.integration.client.conftest import running
from tests.integration.conftest import store, system
from tests.integration.dashboard.conftest import browser, open_browser
from tests.integration.partitions.conftest import cluster, routed, three
from tests.integration.quarantine.conftest import scene

__all__ = ["browser", "cluster", "open_browser", "routed", "running", "scene", "store", "system", "three"]
