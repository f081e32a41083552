"""The pages of all partitions in a real browser: accessible, as wide as the window, and current while one goes away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from werkzeug.serving import make_server
from werkzeug.test import Client

from firmq.dashboard.auth.users import Users
from firmq.dashboard.partitions import PartitionedDashboard
from firmq.gateway.app import create_router
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.task_types import TaskTypes
from tests.integration.dashboard.test_browser import _look as look
from tests.integration.dashboard.test_browser import chromium  # noqa: F401
from tests.integration.partitions.conftest import TYPES, Routed
from tests.integration.partitions.test_dashboard_of_all import bury, submit

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[EmbeddedRedis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(EmbeddedRedis(data_dir=tmp_path / f"redis-{at}")) for at in range(3)]


@pytest.fixture
def address(servers: list[EmbeddedRedis], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a dashboard of three servers with dead letters and pending tasks."""
    monkeypatch.setattr("firmq.gateway.partitions.members.Members.watch", lambda members: None)
    settings = Settings(redis_partitions=tuple(each.url for each in servers))
    with ExitStack() as stack:
        scripts = {at: Scripts(stack.enter_context(connect(own.store_url))) for at, own in settings.partitions.items()}
        for each in scripts.values():
            TaskTypes(each.redis).publish(TYPES)
        router = create_router(settings)
        routed = Routed(settings, router, Client(router), scripts)
        bury(routed, {0: 3, 1: 4, 2: 2}, "card 42 was declined by the bank")
        submit(routed, {0: 2, 1: 1, 2: 2}, tags=["eu"], data={"customer": "ann"})
        server = make_server("127.0.0.1", 0, PartitionedDashboard(settings, Users([])), threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_one_click_retries_a_cause_everywhere_and_a_partition_that_goes_away_is_named(
    servers: list[EmbeddedRedis],
    address: str,
    chromium: Browser,  # noqa: F811
    width: int,
    scheme: str,
) -> None:
    context = chromium.new_context(
        base_url=address,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    context.set_default_timeout(60_000)
    page = context.new_page()
    for name in ("", "tasks", "batches", "bulk", "workers", "dead-letters"):
        page.goto(f"/{name}")
        look(page, f"partitions-{name}-{width}-{scheme}")
    assert page.locator("#dead-count").inner_text() == "9"
    page.get_by_role("link", name="ValueError", exact=True).click()
    look(page, f"partitions-cause-{width}-{scheme}")
    page.get_by_role("button", name="Retry all 9…").click()
    page.get_by_role("button", name="Retry 9", exact=True).click()
    page.get_by_text("0 of 9 retried").wait_for()
    look(page, f"partitions-action-{width}-{scheme}")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    servers[1].kill()
    page.locator("#away").get_by_text("Partition 1 does not answer.").wait_for()
    page.get_by_text("0 of 5 retried").wait_for()
    look(page, f"partitions-away-{width}-{scheme}")
    page.locator("#partition summary").click()
    page.get_by_role("link", name="Partition 2").click()
    assert page.locator("#partition summary").inner_text() == "Partition 2"
    context.close()
