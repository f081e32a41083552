"""What bulk actions add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

import json
from typing import Any

from flask.testing import FlaskClient

from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.features.bulk.store import BulkActions, Plan, Selection, Verb
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.tasks import Filter, Records, filter_of
from tests.support.harness import System
from tests.support.keys import keys
from tests.support.store import Store

BULK = BulkKeys.beside(keys)

# --- pages ---

PAGES = ("/bulk",)
MISSING_PAGES = ("/bulk/nope",)
CHANGES = ("/bulk", "/bulk/review", "/bulk/x/pause", "/bulk/x/resume", "/bulk/x/abort", "/bulk/x/undo")
ROLES = (("/bulk/review", "operator"), ("/bulk", "operator"), ("/bulk/x/pause", "operator"))
PATHS_WITH_ID = ("/bulk/0123456789abcdef/pause",)
PATHS_WITHOUT_ID = ("/bulk", "/bulk/review")
REVIEWS = tuple((f"review of {scope}", "/bulk/review", {"verb": "retry", "scope": scope}) for scope in ("group", "all"))


def _page(system: System) -> str:
    plan = Plan(verb=Verb.DELETE, selection=Selection(wanted=Filter(state=TaskState.FAILED)))
    bulks = BulkActions(system.scripts, system.dead_letters)
    return f"/bulk/{bulks.begin(plan, what='all', by='eve', rate=1)}"


PAGES_OF_SYSTEM = (_page,)

# --- endpoints ---

READ = {"POST /bulk-actions/preview"}
OPERATE = {
    "POST /bulk-actions",
    "POST /bulk-actions/{action_id}/pause",
    "POST /bulk-actions/{action_id}/resume",
    "POST /bulk-actions/{action_id}/abort",
    "POST /bulk-actions/{action_id}/undo",
    "POST /queues/{name}/empty",
}


def _preview(http: FlaskClient, wanted: dict[str, Any], *, dead: bool = False, **options: Any) -> Any:
    body = {"action": "retry" if dead else "cancel", "filter": wanted}
    return http.post("/bulk-actions/preview", json=body, **options)


PREVIEWS = (_preview,)


def _happened(http: FlaskClient) -> set[tuple[str, str]]:
    answer: Any = http.post("/bulk-actions", json={"action": "run_now", "filter": {"queue": "low"}, "reason": "now"})
    http.post(f"/bulk-actions/{answer.json['action_id']}/abort")
    return {
        ("bulk", "The REST API began to run now 0 tasks"),
        ("bulk", "The bulk action of the REST API was aborted, with 0 of 0 tasks done"),
        ("action", f"The REST API aborted the bulk action {answer.json['action_id']}"),
    }


TIMELINE = (_happened,)

# --- Redis ---

JOBS = ("bulk",)
STRANGERS = (("strange bulk actions", BULK.BULKS),)


def _begin(scripts: Scripts, records: Records, task_id: str) -> dict[str, str]:
    plan = Plan(verb=Verb.RETRY, selection=Selection(ids=(task_id,)))
    return {"action_id": BulkActions(scripts, DeadLetters(scripts, records)).begin(plan, what="one", by="b", rate=1000)}


SCENE = (_begin,)


def _count(store: Store, search: str) -> int:
    wanted = filter_of({}, search)
    plan = Plan(verb=Verb.RESTORE if wanted.deleted else Verb.CANCEL, selection=Selection(wanted=wanted))
    return BulkActions(store.scripts, DeadLetters(store.scripts, store.records)).count(plan).number


COUNTS = (_count,)


def _begun(store: Store, wanted: Filter | None = None) -> str:
    actions = BulkActions(store.scripts, DeadLetters(store.scripts, store.records))
    selection = Selection(wanted=wanted) if wanted else Selection()
    return actions.begin(Plan(verb=Verb.CANCEL, selection=selection), what="all", by="a test", rate=1000)


def tasks_cancelled_with_all_they_can_have(store: Store) -> tuple[Any, ...]:
    from tests.integration.stores.test_command_bounds import heavy

    heavy(store, 150)
    return (_begun(store), 100, 500, "", "", "", "", 0)


def tasks_that_do_not_match(store: Store) -> tuple[Any, ...]:
    store.submit(600)
    return (_begun(store, Filter(tag="none")), 100, 500, "", "", "", "", 0)


def many_empty_indexes(store: Store) -> tuple[Any, ...]:
    action = _begun(store)
    wanted = json.loads(store.redis.hget(BULK.bulk(action), "wanted") or b"")
    wanted["sources"] = [keys.pending(f"queue-{n}") for n in range(5000)]
    store.redis.hset(BULK.bulk(action), "wanted", json.dumps(wanted))
    return (action, 100, 500, "", "", "", "", 0)


def tasks_that_are_counted(store: Store) -> tuple[Any, ...]:
    store.submit(1200)
    actions = BulkActions(store.scripts, DeadLetters(store.scripts, store.records))
    plan = Plan(verb=Verb.CANCEL, selection=Selection(wanted=Filter(tag="none")))
    return (json.dumps(actions._wanted(plan, actions._sources(plan), store.scripts.now_us())), 1, "", "", 1000)


WORST = (
    ("bulk_step", 4500, tasks_cancelled_with_all_they_can_have),
    ("bulk_step", 1200, tasks_that_do_not_match),
    ("bulk_step", 1200, many_empty_indexes),
    ("bulk_count", 1200, tasks_that_are_counted),
)
FEW = (("bulk_change", ("a", "paused", "")), ("bulk_follow", ("a", "0", 100)))
