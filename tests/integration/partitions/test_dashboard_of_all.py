"""The pages of the dashboard that show all of three partitions, and bulk actions over them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError
from werkzeug.security import generate_password_hash
from werkzeug.test import Client

from firmq.dashboard import queries
from firmq.dashboard.auth.users import Users
from firmq.dashboard.merged_queries import THREADS
from firmq.dashboard.partitions import PartitionedDashboard
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock
from firmq.shared.domain.partition import partition_of_id
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import connect
from firmq.shared.stores.audit import Audit, AuditEntry
from firmq.shared.stores.bulk_actions import BulkAction, BulkActions
from firmq.shared.stores.locks import NoLocks
from firmq.worker.housekeeping.jobs.bulk import Bulk
from tests.integration.dashboard.conftest import fail_all
from tests.integration.partitions.conftest import Routed


class Pages(Client):
    """A browser in front of the dashboard of all partitions."""

    site: PartitionedDashboard

    def text(self, path: str, status: int = 200) -> str:
        for each in (self.site.partitions.queries, *self.site.partitions.queries.parts.values()):
            each.forget()
            each.cache.failure = None
        answer = self.get(path, follow_redirects=True)
        assert answer.status_code == status, answer.text
        return answer.text

    def lists(self, path: str, kind: str = "row") -> list[list[str]]:
        """The ids on each page of a list."""
        found = list[list[str]]()
        while path:
            text = self.text(path)
            found.append(re.findall(rf'id="{kind}-([^"]+)"', text))
            older = re.search(r'href="([^"]+)">Older', text)
            path = older[1].replace("&amp;", "&") if older else ""
        return found

    def send(self, path: str, expected: int = 302, /, **form: Any) -> str:
        """Posts a form; returns where it leads, or the page when it leads nowhere."""
        [token] = set(re.findall(r'name="csrf" value="([^"]+)"', self.text("/partitions/all-0?to=/queues")))
        answer = self.post(path, data={"csrf": token, "partitions": "all", **form})
        assert answer.status_code == expected, answer.text
        return answer.headers.get("Location", answer.text)


def open_pages(settings: Settings, users: Users | None = None) -> Pages:
    site = PartitionedDashboard(settings, users or Users([]))
    pages = Pages(site)
    pages.site = site
    return pages


@pytest.fixture
def pages(routed: Routed) -> Pages:
    return open_pages(routed.settings)


@contextmanager
def away(pages: Pages, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time in which the Redis of a partition cannot be reached by the dashboard."""
    pool = pages.site.clients[number].connection_pool
    with connect("redis://127.0.0.1:1/0", timeout=0.7, retries=0) as nobody, monkeypatch.context() as patch:
        patch.setattr(pages.site.clients[number], "connection_pool", nobody.connection_pool)
        nobody.connection_pool.connection_kwargs.update(
            {name: value for name, value in pool.connection_kwargs.items() if name in ("partition", "key_prefix")}
        )
        yield


def submit(routed: Routed, counts: dict[int, int], **body: Any) -> dict[int, list[str]]:
    """Submits tasks to the partitions in turn, the first ones first."""
    found: dict[int, list[str]] = {number: [] for number in counts}
    for at in range(max(counts.values())):
        for number, count in counts.items():
            if at < count:
                found[number].append(routed.submit_to(number, **body))
    return found


def bury(routed: Routed, counts: dict[int, int], message: str = "no such card", **body: Any) -> dict[int, list[str]]:
    """Dead letters of one cause in several partitions."""
    found = submit(routed, counts, **body)
    for number, ids in found.items():
        fail_all(routed.scripts[number], dict.fromkeys(ids, message))
    return found


def flat(ids: dict[int, list[str]]) -> list[str]:
    return [each for some in ids.values() for each in some]


def failed(routed: Routed) -> list[int]:
    return [int(each.redis.zcard(each.keys.ended(TaskState.FAILED))) for each in routed.scripts.values()]


def bulks(pages: Pages, number: int) -> BulkActions:
    found: BulkActions = pages.site.partitions.context(number).stores.bulk_actions
    return found


def actions(pages: Pages) -> list[list[BulkAction]]:
    """The actions of each partition."""
    return [bulks(pages, number).all()[0] for number in range(3)]


def carry_out(pages: Pages, *numbers: int) -> None:
    for number in numbers or range(3):
        held = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
        assert held
        Bulk(bulks(pages, number)).run(held)


def audited(routed: Routed, what: str) -> list[list[AuditEntry]]:
    """The entries about such changes in each partition."""
    records = [Audit(each.redis).page(50)[0] for each in routed.scripts.values()]
    return [[each for each in found if each.what == what] for found in records]


def test_the_list_of_tasks_is_that_of_all_partitions(
    routed: Routed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmq.dashboard.merged_queries.PAGE", 5)
    monkeypatch.setattr(queries, "PAGE", 5)
    ids = flat(submit(routed, {0: 9, 1: 2, 2: 7}))
    found = pages.lists("/tasks")
    assert [len(each) for each in found] == [5, 5, 5, 3]
    assert sorted(each for some in found for each in some) == sorted(ids)
    ordered = [each for some in found for each in some]
    assert [each[:10] for each in ordered] == sorted((each[:10] for each in ids), reverse=True), "the newest first"
    assert {partition_of_id(each) or 0 for each in found[0]} == {0, 2}


def test_a_filter_and_a_search_apply_to_all(routed: Routed, pages: Pages) -> None:
    submit(routed, {0: 2, 1: 2, 2: 2})
    mails = submit(routed, {1: 1, 2: 2}, type="mail", data={"to": "ann"})
    assert sorted(pages.lists("/tasks?type=mail")[0]) == sorted(flat(mails))
    assert sorted(pages.lists("/tasks?search=data.to:ann")[0]) == sorted(flat(mails))
    assert "ann" in pages.text("/tasks?type=mail"), "with the data of each"
    [task] = mails[1]
    assert pages.get(f"/tasks?search=id:{task}").headers["Location"].endswith(f"/tasks/{task}")


@pytest.mark.parametrize("path", ["/tasks", "/batches"])
@pytest.mark.parametrize("cursor", ["17_a", "p.e30x", "p.eyIwIjoieCJ9"])
def test_an_invalid_cursor_is_refused(pages: Pages, path: str, cursor: str) -> None:
    assert "invalid" in pages.text(f"{path}?cursor={cursor}", status=400)


def test_the_dead_letters_of_a_cause_are_added_up(routed: Routed, pages: Pages) -> None:
    ids = bury(routed, {0: 1, 1: 3, 2: 2})
    bury(routed, {1: 4}, "another one", type="mail")
    text = pages.text("/dead-letters")
    assert [int(each) for each in re.findall(r'aria-label="(\d+) dead letters', text)] == [6, 4]
    assert "2 causes" in text
    assert re.search(r'id="dead-count"><span class="count">10<', text)
    key = re.findall(r'id="cause-(\w+)"', text)[0]
    assert sorted(pages.lists(f"/dead-letters/{key}")[0]) == sorted(flat(ids))
    assert '<strong id="group-count">6</strong>' in pages.text(f"/dead-letters/{key}")
    assert "6 tasks" in pages.text(f"/breakdown?cause={key}")


def test_batches_are_those_of_all(routed: Routed, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firmq.dashboard.merged_queries.PAGE", 2)
    monkeypatch.setattr(queries, "PAGE", 2)
    ids = []
    for number in (0, 1, 2, 2, 0):
        for each in routed.router.members.all.values():
            each.answers = each.number == number
        answer = routed.post("/batches", {"tasks": [{"type": "process", "data": 1}]})
        ids.append(answer.json["batch_id"])
    found = pages.lists("/batches", "batch")
    assert [len(each) for each in found] == [2, 2, 1]
    assert [each for some in found for each in some] == ids[::-1]
    assert "1 task" in pages.text(f"/breakdown?batch_id={ids[2]}")


def test_a_partition_that_is_away_is_named(routed: Routed, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = bury(routed, {0: 1, 1: 2, 2: 3})
    key = re.findall(r'id="cause-(\w+)"', pages.text("/dead-letters"))[0]
    with away(pages, 1, monkeypatch):
        for path in ("/tasks", "/dead-letters", f"/dead-letters/{key}", "/batches", "/bulk", "/"):
            text = pages.text(path)
            assert "Partition 1 does not answer." in text or (path == "/" and "s-unavailable" in text), path
        assert sorted(pages.lists("/tasks")[0]) == sorted(ids[0] + ids[2])
        pages.text(f"/tasks/{ids[1][0]}", status=503)
        assert f'id="dead-count"><span class="count">{4}<' in pages.text("/batches")
    assert "Partition 1 does not answer" not in pages.text("/tasks")


def test_the_number_at_the_top_is_that_of_the_choice(routed: Routed, pages: Pages) -> None:
    bury(routed, {0: 1, 1: 2, 2: 3})
    to = pages.send("/bulk", scope="all", verb="retry", rate=1)
    for choice, number in (("all", 6), ("all-2", 6), ("1", 2)):
        pages.get(f"/partitions/{choice}")
        for path in ("/dead-letters", "/workers", to):
            assert f'id="dead-count"><span class="count">{number}<' in pages.text(path), (choice, path)


def test_the_totals_of_all_partitions_are_on_the_overview(routed: Routed, pages: Pages) -> None:
    submit(routed, {0: 1, 1: 2, 2: 3})
    text = pages.text("/")
    assert "3 of 3 answer" in text
    total = text.partition('id="total"')[2].partition("</tr>")[0]
    assert "status=pending" in total
    assert ">6<" in total


def test_a_cause_is_retried_in_all_partitions_at_once(routed: Routed, pages: Pages) -> None:
    bury(routed, {0: 1, 1: 4, 2: 5})
    bury(routed, {1: 1}, "another one", type="mail")
    key = re.findall(r'id="cause-(\w+)"', pages.text("/dead-letters"))[0]
    form = {"scope": "group", "cause": key, "verb": "retry"}
    assert "Retry 10 dead letters?" in pages.send("/bulk/review", 200, **form)
    to = pages.send("/bulk", rate=100, canary=10, **form)
    found = [each[0] for each in actions(pages)]
    assert [each.total for each in found] == [1, 4, 5]
    assert [each.rate for each in found] == [10, 40, 50]
    assert [each.canary for each in found] == [1, 4, 5]
    assert len({each.id[:16] for each in found}) == 1
    assert [len(each) for each in audited(routed, "started bulk retry")] == [1, 1, 1]
    assert [each[0].about for each in audited(routed, "started bulk retry")] == [each.id for each in found]
    carry_out(pages)
    assert failed(routed) == [0, 1, 0]
    for path in (to, *(f"/bulk/{each.id}" for each in found)):
        assert "10 of 10 retried" in pages.text(path)
        assert "100 per second" in pages.text(path)
    assert pages.text("/bulk").count('<section class="card" id="bulk-') == 1
    replays = pages.text(f"/dead-letters/{key}").partition('id="replays"')[2]
    assert replays.count('href="/bulk/') == 1


def test_partitions_without_matching_tasks_begin_nothing(routed: Routed, pages: Pages) -> None:
    submit(routed, {0: 1, 2: 2}, type="mail")
    pages.send("/bulk", scope="filter", type="mail", verb="cancel", rate=1)
    assert [len(each) for each in actions(pages)] == [1, 0, 1]
    assert [each[0].rate for each in actions(pages) if each] == [1, 1]
    carry_out(pages)
    assert "changed since" in pages.send("/bulk", 400, scope="filter", type="mail", verb="cancel", rate=1)


def test_tasks_are_moved_to_a_queue_that_only_another_partition_has(routed: Routed, pages: Pages) -> None:
    submit(routed, {2: 1}, type="mail", queue="letters")
    submit(routed, {0: 1, 1: 1})
    form = {"scope": "filter", "type": "process", "verb": "move", "rate": 9}
    assert "there is no queue" in pages.send("/bulk", 400, to="parcels", **form)
    pages.send("/bulk", to="letters", **form)
    carry_out(pages)
    assert len(pages.lists("/tasks?queue=letters&status=pending")[0]) == 3


def test_selected_tasks_are_processed_where_they_are(routed: Routed, pages: Pages) -> None:
    ids = bury(routed, {0: 2, 1: 2, 2: 2})
    chosen = [ids[0][0], *ids[2]]
    form: dict[str, Any] = {"scope": "picked", "id": chosen, "verb": "delete"}
    assert "Delete 3 dead letters?" in pages.send("/bulk/review", 200, **form)
    pages.send("/bulk", rate=1000, **form)
    assert [[each.total for each in some] for some in actions(pages)] == [[1], [], [2]]
    carry_out(pages)
    assert failed(routed) == [1, 2, 0]


def test_an_action_is_paused_resumed_and_aborted_in_all_partitions(routed: Routed, pages: Pages) -> None:
    submit(routed, {0: 1, 1: 1, 2: 1})
    to = pages.send("/bulk", scope="filter", status="pending", verb="cancel", rate=1)
    pages.get("/partitions/1")
    pages.send(f"{to}/pause")
    assert [each[0].state for each in actions(pages)] == ["paused"] * 3
    assert [len(each) for each in audited(routed, "paused bulk action")] == [1, 1, 1]
    pages.send(f"{to}/resume")
    carry_out(pages, 1)
    pages.send(f"{to}/abort")
    assert [each[0].state for each in actions(pages)] == ["aborted", "finished", "aborted"]
    assert [len(each) for each in audited(routed, "aborted bulk action")] == [1, 0, 1], "where it had not ended"
    assert "has ended" in pages.send(f"{to}/abort", 400)
    assert "s-aborted" in pages.text(to)


def test_an_action_is_undone_in_all_partitions(routed: Routed, pages: Pages) -> None:
    bury(routed, {0: 2, 1: 1, 2: 3})
    to = pages.send("/bulk", scope="all", verb="delete", rate=3000)
    assert "has not ended" in pages.send(f"{to}/undo", 400)
    carry_out(pages)
    assert failed(routed) == [0, 0, 0]
    assert "6 of 6 deleted" in pages.text(to)
    undo = pages.send(f"{to}/undo")
    carry_out(pages)
    assert failed(routed) == [2, 1, 3]
    assert "6 of 6 restored" in pages.text(undo)
    assert pages.text("/bulk").count('<section class="card" id="bulk-') == 2
    assert [len(each) for each in audited(routed, "started undo of bulk action")] == [1, 1, 1]


def test_an_action_does_not_begin_while_a_partition_is_away(
    routed: Routed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = bury(routed, {0: 1, 2: 1})
    with away(pages, 2, monkeypatch):
        forms: list[dict[str, Any]] = [{"scope": "all"}, {"scope": "picked", "id": ids[0]}]
        for form in forms:
            for path in ("/bulk/review", "/bulk"):
                answer = pages.send(path, 503, verb="retry", rate=1, **form)
                assert "Partition 2 does not answer. Nothing was changed" in answer
    assert actions(pages) == [[], [], []]
    assert failed(routed) == [1, 0, 1]


def test_a_partition_that_is_away_does_not_keep_an_action_from_being_paused(
    routed: Routed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(routed, {0: 1, 1: 1, 2: 1})
    to = pages.send("/bulk", scope="filter", status="pending", verb="cancel", rate=1)
    with away(pages, 1, monkeypatch):
        pages.send(f"{to}/pause")
        assert (
            "The action is paused, but partition 1 does not answer: repeat the change when all answer."
            in pages.text(to)
        )
    assert [each[0].state for each in actions(pages)] == ["paused", "running", "paused"]
    assert "s-running" in pages.text(to)


def test_an_action_of_one_partition_is_its_own(routed: Routed, pages: Pages) -> None:
    bury(routed, {0: 1, 1: 1})
    pages.send("/bulk/review", 200, scope="all", verb="retry")
    [token] = set(re.findall(r'name="csrf" value="([^"]+)"', pages.text("/partitions/1?to=/queues")))
    pages.post("/bulk", data={"csrf": token, "scope": "all", "verb": "retry", "rate": 9, "partitions": "1"})
    assert [len(each) for each in actions(pages)] == [0, 1, 0]
    pages.get("/partitions/0")
    assert "0 of 1 retried" in pages.text(f"/bulk/{actions(pages)[1][0].id}")


def test_roles_and_forged_forms_are_refused(routed: Routed) -> None:
    bury(routed, {0: 1, 1: 1})
    people = {"vera": "viewer", "olga": "operator"}
    known = generate_password_hash("secret", "scrypt:1024:1:1")
    lines = tuple(f"{name}:{role}:{known}" for name, role in people.items())
    settings = routed.settings.model_copy(update={"dashboard_users": lines})
    users = Users.load_or_exit(settings)
    assert open_pages(settings, users).get("/dead-letters").headers["Location"].startswith("/sign-in")
    for name, verbs in (("vera", {"retry": 403, "delete": 403}), ("olga", {"retry": 200, "delete": 403})):
        pages = open_pages(settings, users)
        token = re.findall(r'name="csrf" value="([^"]+)"', pages.get("/sign-in").text)[0]
        pages.post("/sign-in", data={"csrf": token, "name": name, "password": "secret"})
        for verb, status in verbs.items():
            pages.send("/bulk/review", status, scope="all", verb=verb)
        forged = {"csrf": "forged", "scope": "all", "verb": "retry", "rate": 1}
        assert pages.post("/bulk", data=forged).status_code == 403
        assert actions(pages) == [[], [], []]


def test_an_action_is_carried_out_where_it_was_reviewed(routed: Routed, pages: Pages) -> None:
    """In another tab, other partitions can be chosen between the review and the action."""
    submit(routed, {0: 1, 1: 1, 2: 1})
    form = {"scope": "filter", "status": "pending", "verb": "cancel", "rate": 1}
    assert 'name="partitions" value="all"' in pages.send("/bulk/review", 200, **form)
    for chosen in ("1", ""):
        assert "have been chosen since" in pages.send("/bulk", 400, **form, partitions=chosen)
    pages.text("/partitions/1")
    [token] = set(re.findall(r'name="csrf" value="([^"]+)"', pages.text("/queues")))
    answer = pages.post("/bulk", data={**form, "csrf": token, "partitions": "all"})
    assert (answer.status_code, "have been chosen since" in answer.text) == (400, True)
    assert 'name="partitions" value="1"' in pages.post("/bulk/review", data={**form, "csrf": token}).text
    assert not [each for some in actions(pages) for each in some]
    assert pages.post("/bulk", data={**form, "csrf": token, "partitions": "1"}).status_code == 302
    assert [len(some) for some in actions(pages)] == [0, 1, 0]


@pytest.mark.parametrize(
    "to", ["/%09/evil.example", "/%0A/x", "//evil.example", "/%5Cevil.example", "https://evil.example"]
)
def test_a_choice_leads_to_no_other_site(pages: Pages, to: str) -> None:
    answer = pages.get(f"/partitions/all?to={to}")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_probes_are_answered_without_a_look_at_the_partitions(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages.site.partitions, "look", lambda: pytest.fail("a slow partition would delay it"))
    for path in ("/health/live", "/health/ready", "/metrics"):
        answer = pages.get(path)
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (200, False)


def test_the_dashboard_is_ready_while_any_partition_answers(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise ConnectionError("refused")

    for client in pages.site.clients.values():
        assert pages.get("/health/ready").status_code == 200
        monkeypatch.setattr(client, "ping", lost)
    assert pages.get("/health/ready").status_code == 503


def test_what_waits_for_a_thread_is_not_done_later(pages: Pages) -> None:
    asking, over, done = pages.site.partitions.queries, threading.Event(), list[int]()
    busy = [asking._pools[1].submit(over.wait) for _ in range(THREADS)]
    found, lost = asking.ask(done.append, patience=0.1)
    over.set()
    for each in busy:
        each.result()
    asking._pools[1].submit(lambda: None).result()
    assert (sorted(found), list(lost), sorted(done)) == ([0, 2], [1], [0, 2]), "the page says that it was not done"
    assert not asking.ask(lambda number: number)[1], "the partition is not taken for one that does not answer"
