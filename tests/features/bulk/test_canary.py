"""A retry that tries a few dead letters first, and stops by itself when too few complete."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta

import pytest

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock
from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.store import BulkAction, BulkActions, Plan, Selection, Verb
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import NoLocks
from firmq.shared.stores.tasks import Filter
from firmq.worker.features.bulk.job import Bulk
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System
from tests.support.keys import keys

DEAD = Selection(wanted=Filter(state=TaskState.FAILED))
ERROR = {"type": "ValueError", "message": "no", "place": "shop.pay", "pattern": "no"}


class Retry:
    """A retry of all dead letters with a canary, and what the housekeeper and a worker do for it."""

    def __init__(self, system: System, canary: int) -> None:
        self.system = system
        self.bulks = BulkActions(system.scripts, system.dead_letters)
        plan = Plan(verb=Verb.RETRY, selection=DEAD, canary=canary)
        self.id = self.bulks.begin(plan, what="all", by="eve", rate=1000)
        ticks = itertools.count()
        self.job = Bulk(self.bulks, sleep=lambda seconds: None, clock=lambda: next(ticks) * 0.1)

    @property
    def action(self) -> BulkAction:
        found = self.bulks.get(self.id)
        assert found
        return found

    def go_on(self) -> BulkAction:
        """Lets a housekeeper run twice: the second run acts on what the first has counted."""
        for _ in range(2):
            held = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
            assert held
            self.job.run(held)
        return self.action

    def end(self, failed: int = 0) -> None:
        """Ends what waits: so many tasks fail again, the others complete."""
        scripts = self.system.scripts
        rows = scripts.call("claim", *claiming("digger", self.id, 60_000_000, 200, 1 << 24, "normal", 200))[3]
        failures = [ended(row[0], self.id, "failed", error=json.dumps(ERROR)) for row in rows[:failed]]
        report(scripts, *failures, *(ended(row[0], self.id, "completed") for row in rows[failed:]), worker="digger")
        self.system.redis.delete(keys.claim("digger"))


def test_the_others_follow_when_the_first_complete(system: System, browser: Browser) -> None:
    bury(system, ["no"] * 20)
    retry = Retry(system, canary=3)
    found = retry.go_on()
    assert (found.done, found.status) == (3, "trying the first")
    assert "trying the first" in browser.text(f"/bulk/{retry.id}")
    retry.end()
    found = retry.go_on()
    assert (found.done, found.state) == (20, "finished")


def test_it_stops_by_itself_when_too_few_complete(system: System, browser: Browser) -> None:
    bury(system, ["no"] * 20)
    retry = Retry(system, canary=3)
    retry.go_on()
    retry.end(failed=1)
    found = retry.go_on()
    assert (found.done, found.state, found.status) == (3, "aborted", "stopped")
    why = "2 of the 3 retried tasks that ended completed, fewer than 95 %"
    assert found.why == why
    assert system.records.counts()[TaskState.FAILED] == 18
    assert f"It stopped by itself: {why}." in browser.text(f"/bulk/{retry.id}")
    entries, _ = Audit(system.redis).page(1)
    assert [(each.who, each.what, each.detail) for each in entries] == [("housekeeper", "stopped bulk action", why)]
    http = create_app(Settings(), system.redis).test_client()
    assert (http.get(f"/bulk-actions/{retry.id}").json or {})["stopped_because"] == why


def test_five_in_a_hundred_may_fail(system: System) -> None:
    bury(system, ["no"] * 30)
    retry = Retry(system, canary=20)
    retry.go_on()
    retry.end(failed=1)
    assert retry.go_on().state == "finished"


def test_it_stops_later_too(system: System) -> None:
    bury(system, ["no"] * 400)
    retry = Retry(system, canary=5)
    retry.go_on()
    retry.end()
    held = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
    assert held
    retry.bulks.step(retry.action, 100, held.fencing_token)
    retry.end(failed=50)
    found = retry.go_on()
    assert (found.status, found.done) == ("stopped", 105)


def test_fewer_dead_letters_than_the_canary_are_all_retried(system: System) -> None:
    bury(system, ["no"] * 2)
    assert Retry(system, canary=5).go_on().state == "finished"


def test_the_review_has_its_fields(system: System, browser: Browser) -> None:
    bury(system, ["no"] * 3)
    assert 'name="canary"' in browser.post("/bulk/review", scope="all", verb="retry").text
    assert 'name="canary"' not in browser.post("/bulk/review", scope="all", verb="delete").text
    browser.post("/bulk", scope="all", verb="retry", rate="50", canary="2")
    [action], _ = BulkActions(system.scripts, system.dead_letters).all()
    assert action.canary == 2
    answer = browser.post("/bulk", scope="all", verb="retry", rate="50", canary="100000")
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"action": "retry", "canary": 5}, 202),
        ({"action": "retry", "canary": 100_000}, 422),
        ({"action": "cancel", "canary": 5}, 422),
    ],
)
def test_the_api_takes_a_canary_for_retries(system: System, body: dict[str, object], status: int) -> None:
    state = "failed" if body["action"] == "retry" else "pending"
    http = create_app(Settings(), system.redis).test_client()
    assert http.post("/bulk-actions", json={**body, "filter": {"status": state}}).status_code == status
