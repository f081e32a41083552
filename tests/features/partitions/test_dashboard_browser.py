"""The pages of several partitions in a real browser: accessible, as wide as the window, and current."""

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
from firmq.dashboard.features.partitions.app import PartitionedDashboard
from firmq.gateway.features.partitions.feature import create_router
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.task_types import TaskTypes
from tests.features.partitions.conftest import TYPES, Routed
from tests.integration.dashboard.conftest import fail_all
from tests.integration.dashboard.test_browser import _look as look
from tests.integration.dashboard.test_browser import chromium  # noqa: F401

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[EmbeddedRedis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(EmbeddedRedis(data_dir=tmp_path / f"redis-{at}")) for at in range(3)]


@pytest.fixture
def address(servers: list[EmbeddedRedis], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a dashboard of three servers with dead letters and pending tasks."""
    monkeypatch.setattr("firmq.gateway.features.partitions.members.Members.watch", lambda members: None)
    settings = Settings.model_validate({"redis_partitions": tuple(each.url for each in servers)})
    with ExitStack() as stack:
        scripts = {at: Scripts(stack.enter_context(connect(own.store_url))) for at, own in settings.stores.items()}
        for each in scripts.values():
            TaskTypes(each.redis).publish(TYPES)
        router = create_router(settings)
        routed = Routed(settings, router, Client(router), scripts)
        for number, count in {0: 3, 1: 4, 2: 2}.items():
            dead = [routed.submit_to(number) for _ in range(count)]
            fail_all(scripts[number], dict.fromkeys(dead, "card 42 was declined by the bank"))
            routed.submit_to(number, tags=["eu"], data={"customer": "ann"})
        server = make_server("127.0.0.1", 0, PartitionedDashboard(settings, Users([])), threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_partition_is_chosen_and_its_dead_letters_are_retried(
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
    page.goto("/partitions")
    look(page, f"partitions-{width}-{scheme}")
    page.locator("#partition summary").click()
    page.locator("#partition").get_by_role("link", name="Partition 1").click()
    page.goto("/dead-letters")
    look(page, f"partitions-dead-letters-{width}-{scheme}")
    assert page.locator("#dead-count").inner_text() == "4"
    page.get_by_role("link", name="ValueError", exact=True).click()
    page.get_by_role("button", name="Retry all 4…").click()
    page.get_by_role("button", name="Retry 4", exact=True).click()
    page.get_by_text("0 of 4 retried").wait_for()
    look(page, f"partitions-action-{width}-{scheme}")
    servers[1].kill()
    page.goto("/partitions")
    page.get_by_text("Partition 1 does not answer.").wait_for()
    look(page, f"partitions-away-{width}-{scheme}")
    page.locator("#partition summary").click()
    page.locator("#partition").get_by_role("link", name="Partition 2").click()
    assert page.locator("#partition summary").inner_text() == "Partition 2"
    context.close()
