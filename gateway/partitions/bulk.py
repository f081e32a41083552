"""Bulk actions over all partitions, as one: each partition has a part of it, whose id differs in the mark only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from firmq.gateway.http.parts import AUDITED, BULK_PART, PART, BulkPart
from firmq.gateway.partitions import merging
from firmq.shared.domain.partition import mark_of_partition, not_answering, sibling
from firmq.shared.stores.bulk_actions import MOST_SELECTED
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from firmq.gateway.partitions.members import Answer, Environ, Member
    from firmq.gateway.partitions.router import Call, Router

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PREVIEWED = ("action", "filter", "task_ids", "to", "patch")
Bodies = Mapping["Member", bytes]
About = Callable[["Member"], "Environ"]
"""Returns what the app of a partition is told about a request."""


# --- beginning ---


def preview(router: Router, call: Call) -> Answer:
    """Returns how many tasks of all partitions an action would process."""
    bodies = _bodies(router, call)
    answers = _ask(call, bodies)
    bad = next((each for each in answers if not each.well and not each.is_away), None)
    return bad or router.combined(answers, lambda parts: merging.preview(parts, _limit(bodies)))


def begin(router: Router, call: Call) -> Answer:
    """Begins an action in every partition."""
    return _begin(router, call, lambda body: {name: body[name] for name in _PREVIEWED if name in body})


def empty(router: Router, call: Call) -> Answer:
    """Begins to cancel the waiting tasks of a queue in every partition that has it."""
    return _begin(router, call, lambda _: {"action": "cancel", "filter": {"queue": call.match["name"]}})


def _begin(router: Router, call: Call, previewed: Callable[[Any], Any]) -> Answer:
    """Begins the parts of an action; `previewed` returns the body of a preview of it.

    What one partition refuses, such as a queue that it does not know, begins in none. Raises Refusal.
    """
    router.demand_all()
    bodies = _bodies(router, call)
    asked = {member: previewed(_object(body)) for member, body in bodies.items()}
    if not all(asked.values()):  # no JSON, or nothing of what is required: the app says what is wrong
        return next(member.call(call.environ, body) for member, body in bodies.items())
    previews = {member: _preview(member, call, body) for member, body in asked.items()}
    if refusal := next((each for each in previews.values() if 400 <= each.status < 500), None):
        return replace(
            refusal, body=json.dumps({**refusal.document, "instance": call.environ["PATH_INFO"]}).encode() + b"\n"
        )
    if away := [member.number for member, answer in previews.items() if not answer.well]:
        text = f"{not_answering(away)}, and an action needs all: try again when all answer"
        raise refusals.unfinished(Refusal(refusals.STORE, text, headers={"Retry-After": "2"}), sent=False)
    if unfit := next((member for member, answer in previews.items() if answer.document["unfit"]), None):
        return unfit.call(call.environ, bodies[unfit])  # which refuses it, and says why
    counts = {member: answer.document["count"] for member, answer in previews.items()}
    # A share is never less than one task, so a limit below the number of partitions takes from as many partitions.
    most_first = sorted(counts, key=counts.__getitem__, reverse=True)[: _limit(bodies)]
    with_tasks = {member: body for member, body in bodies.items() if counts[member] and member in most_first}
    tasks = {member.number: counts[member] for member in with_tasks or counts}
    action_id = token_hex(8)
    answers = _ask(
        call,
        with_tasks or bodies,
        lambda member: {BULK_PART: BulkPart(action_id=action_id, number=member.number, tasks=tasks)},
    )
    return _begun(router, answers)


def _begun(router: Router, answers: list[Answer]) -> Answer:
    """Returns the action out of its parts; a partition that was lost in the meantime is named."""
    known = [each for each in answers if each.status != 404] or answers[:1]
    refused = next((each for each in known if not each.well and not each.is_away), None)
    return refused or router.combined(known, merging.bulk_action)


def _bodies(router: Router, call: Call) -> Bodies:
    """Returns the body for each partition: with the ids of its own tasks, else as it was sent. Raises Refusal."""
    sent = router.body(call)
    body = _object(sent)
    ids = body.get("task_ids")
    if not isinstance(ids, list) or not 0 < len(ids) <= MOST_SELECTED or not all(map(_is_id, ids)):
        # A filter, or the apps say what is wrong.
        return dict.fromkeys(router.members.answering() or [router.members.first], sent)
    own: dict[Member, list[str]] = {}
    places = router.locate_all(ids)
    for each in ids:
        own.setdefault(places[each], []).append(each)
    return {member: json.dumps({**body, "task_ids": some}).encode() for member, some in own.items()}


def _is_id(said: object) -> bool:
    return isinstance(said, str) and _TASK_ID.fullmatch(said) is not None


def _object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; an empty one for what is none, about which the apps say what is wrong."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _limit(bodies: Bodies) -> int | None:
    """Returns how many tasks a filter takes at most."""
    wanted = _object(next(iter(bodies.values()))).get("filter")
    return wanted.get("limit") if isinstance(wanted, dict) else None


def _preview(member: Member, call: Call, body: Any) -> Answer:
    environ = {**call.environ, "PATH_INFO": "/bulk-actions/preview"}
    return member.call(environ, json.dumps(body).encode(), {PART: 1})


# --- looking at it, and changing it ---


def show(router: Router, call: Call) -> Answer | Member:
    """Shows an action with the progress of all of its parts."""
    parts = _ask_parts(router, call)
    return router.combined(parts, merging.bulk_action) if parts else router.locate(call.match["id"])


def change(router: Router, call: Call) -> Answer | Member:
    """Pauses, resumes or aborts the parts of an action that have not ended.

    Raises Refusal where a partition did not answer, after the change in the others; it may be repeated.
    """
    parts = _ask_parts(router, call)
    if not parts:
        return router.locate(call.match["id"])
    if refused := next((each for each in parts if 400 <= each.status < 500 and each.status != 409), None):
        return refused
    is_changed = any(each.well for each in parts)
    lost = sorted({*router.members.away(), *(each.number for each in parts if each.status >= 500)})
    if lost and any(each.status < 500 for each in parts):
        others = "was changed" if is_changed else "has ended"
        text = f"{not_answering(lost)}; the action {others} in the others: repeat the request when all answer"
        raise Refusal(refusals.STORE, text, headers={"Retry-After": "2"})
    return router.combined(_look(router, call), merging.bulk_action) if is_changed else parts[0]


def undo(router: Router, call: Call) -> Answer | Member:
    """Begins an action that undoes all parts of one that has ended. Raises Refusal while a part is open."""
    router.demand_all()
    parts = _look(router, call)
    if not parts:
        return router.locate(call.match["id"])
    if unread := next((each for each in parts if not each.well), None):
        return unread
    if is_open := [each for each in parts if each.document["ended_at"] is None]:
        text = f"the bulk action is {is_open[0].document['status']}: abort it first"
        raise Refusal(refusals.CONFLICT, text)
    action_id = token_hex(8)
    begun = _ask_parts(router, call, lambda member: {BULK_PART: BulkPart(action_id=action_id, number=member.number)})
    return _begun(router, begun)


def _look(router: Router, call: Call) -> list[Answer]:
    """Returns the parts of an action, for a request that is counted elsewhere."""
    return _ask_parts(router, replace(call, environ={**call.environ, "REQUEST_METHOD": "GET"}), lambda _: {PART: 1})


def _ask_parts(router: Router, call: Call, about: About = lambda _: {}) -> list[Answer]:
    """Sends a request to the partitions that may have a part of an action; returns the answers of those that have."""
    own = router.locate(call.match["id"])
    what = call.environ["PATH_INFO"][call.match.end("id") :] if call.method == "POST" else ""

    def of_part(member: Member) -> Environ:
        action_id = sibling(call.match["id"], mark_of_partition(member.number))
        return {"PATH_INFO": f"/bulk-actions/{action_id}{what}", **about(member)}

    members = dict.fromkeys([own, *router.members.answering()], b"")
    return [each for each in _ask(call, members, of_part) if each.status != 404]


def _ask(call: Call, bodies: Bodies, about: About = lambda _: {}) -> list[Answer]:
    """Sends a request to partitions. The first counts it, and asks no other one where it refuses it; the first that
    does it audits it.
    """
    answers: list[Answer] = []
    for at, (member, body) in enumerate(bodies.items()):
        is_done = any(each.well for each in answers)
        answers.append(member.call(call.environ, body, {PART: at, AUDITED: not is_done, **about(member)}))
        if at == 0 and 400 <= answers[0].status < 500 and answers[0].status not in (404, 409):
            break
    return answers
