"""The dashboard of three partitions: which of them a page shows, and the page that shows all."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from redis.exceptions import ConnectionError
from werkzeug.test import Client

from firmq.dashboard.auth.users import Users
from firmq.dashboard.features.partitions.app import PartitionedDashboard, Partitions
from firmq.shared.features.partitions.command import set_state
from firmq.shared.redis.client import connect
from tests.features.partitions.conftest import Routed
from tests.support.harness import wait_until


def lost() -> None:
    raise ConnectionError("refused")


@pytest.fixture
def pages(routed: Routed) -> Client:
    return Client(PartitionedDashboard(routed.settings, Users([])))


def shown(pages: Client, path: str) -> tuple[int, str]:
    """The status of a page, and the partition that it shows."""
    answer = pages.get(path, follow_redirects=True)
    _, _, rest = answer.text.partition('id="partition"><summary aria-label="')
    return answer.status_code, rest.partition(":")[0].removeprefix("Partition ")


def test_a_page_about_what_one_partition_has_is_that_of_it(routed: Routed, pages: Client) -> None:
    for number in (2, 0, 1):
        task = routed.submit_to(number)
        assert shown(pages, f"/tasks/{task}") == (200, str(number))
        assert shown(pages, "/tasks") == (200, str(number)), "the lists that are one click away are of the same one"


def test_the_browser_chooses_the_partition_of_other_pages(routed: Routed, pages: Client) -> None:
    assert shown(pages, "/") == (200, "0")
    assert shown(pages, "/partitions/2?to=/queues") == (200, "2")
    assert shown(pages, "/dead-letters") == (200, "2")
    task = routed.submit_to(0)
    assert shown(pages, f"/partitions/1?to=/tasks/{task}") == (200, "1"), "that task is in another one"
    for unknown in ("7", "all", "-1"):
        assert shown(pages, f"/partitions/{unknown}")[0] == 404
    assert shown(pages, "/limits") == (200, "1")


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "https://evil.example", ""])
def test_a_choice_leads_to_no_other_site(pages: Client, to: str) -> None:
    answer = pages.get("/partitions/1", query_string={"to": to})
    assert answer.headers["Location"] in ("/", "http://localhost/")


def test_one_page_shows_all_partitions(routed: Routed, pages: Client) -> None:
    for number in range(3):
        routed.submit_to(number)
    text = pages.get("/partitions").text
    assert text.count("s-active") == 3
    assert "3 of 3 answer" in text
    set_state(routed.scripts[1].redis, "draining")
    assert "s-draining" in pages.get("/partitions").text


def test_a_partition_that_is_away_is_named_and_the_others_are_shown(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = PartitionedDashboard(routed.settings, Users([]))
    with connect("redis://127.0.0.1:1/0", timeout=0.7, retries=0) as nobody:
        context: Any = dashboard.partitions.context(0)
        monkeypatch.setattr(context.queries.overview.observer.scripts, "redis", nobody)
        monkeypatch.setattr(context.queries.overview.observer.queues.scripts, "redis", nobody)
        pages = Client(dashboard)
        text = pages.get("/partitions").text
        assert "s-unavailable" in text
        assert "2 of 3 answer" in text
        monkeypatch.setattr(dashboard.clients[0], "ping", lost)
        assert shown(Client(dashboard), "/queues") == (200, "1"), "the first that answers"


def test_probes_are_answered_without_a_look_at_the_partitions(
    routed: Routed, pages: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partitions, "look", lambda _: pytest.fail("a slow partition would delay it"))
    for path in ("/health/live", "/health/ready", "/metrics"):
        answer = pages.get(path)
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (200, False)


def test_the_dashboard_is_ready_while_any_partition_answers(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    site = PartitionedDashboard(routed.settings, Users([]))
    for client in site.clients.values():
        assert Client(site).get("/health/ready").status_code == 200
        monkeypatch.setattr(client, "ping", lost)
    assert Client(site).get("/health/ready").status_code == 503


def test_a_partition_that_is_late_is_not_waited_for_again(routed: Routed) -> None:
    partitions, over = PartitionedDashboard(routed.settings, Users([])).partitions, threading.Event()

    def read(number: int) -> int:
        if number == 1:
            over.wait(30)
        return number

    for _ in range(2):
        found, away = partitions.ask(read, patience=0.2)
        assert (sorted(found), list(away)) == ([0, 2], [1])
    over.set()
    wait_until(lambda: not partitions.ask(read, patience=0.2)[1], "its answer is there")


def test_all_partitions_share_the_count_of_failed_sign_ins_and_the_metrics(routed: Routed) -> None:
    """A browser chooses the partition: with a count in each, it would have as many tries more."""
    dashboard = PartitionedDashboard(routed.settings, Users([]))
    contexts = [dashboard.partitions.context(number) for number in range(3)]
    assert len({id(each.login_throttle) for each in contexts}) == 1
    assert len({id(each.metrics) for each in contexts}) == 1
