"""Endpoints for bulk actions: preview, start, show, pause, resume, abort, undo, empty a queue."""

from __future__ import annotations

from firmq.gateway.auth.authenticator import actor, demand_scope
from firmq.gateway.auth.visible import demand_no_placeholder, visible
from firmq.gateway.features.bulk import schemas
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.routes.queue_names import demand_queue, known_queue
from firmq.shared.errors import StoreUnavailable
from firmq.shared.features.bulk.amending import Amendments, Change, misfit
from firmq.shared.features.bulk.store import BulkAction, BulkActions, Plan, Selection, Verb
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.tasks import Filter
from firmq.shared.submission import reading, refusals
from firmq.shared.submission.refusals import Refusal

_SEVERAL = "firmq.gateway.features.bulk.several_stores:"
SAMPLE = 20
"""Tasks that a preview shows."""
_SHOWN = {200: Answer(description="The bulk action.", model=schemas.BulkActionView)}
STARTED = {202: Answer(description="The action is stored and has begun.", model=schemas.BulkActionView)}


class BulkRoutes:
    """Actions on many tasks, which a housekeeper carries out in the background at a rate."""

    def __init__(self, bulk_actions: BulkActions, amendments: Amendments, default_priority: str) -> None:
        self.bulk_actions = bulk_actions
        self.amendments = amendments
        self.default_priority = default_priority

    @endpoint(
        "POST",
        "/bulk-actions/preview",
        _SEVERAL + "begin",
        tag="bulk actions",
        scope=Scope.READ,
        body=schemas.BulkPreviewBody,
        answers={200: Answer(description="The number of tasks, and some of them.", model=schemas.BulkPreview)},
    )
    def preview(self, body: schemas.BulkPreviewBody) -> Reply:
        """Counts the tasks that an action would process now, and shows some of them. Changes nothing."""
        plan = self._checked(body)
        count, sample = self.bulk_actions.count(plan), self.bulk_actions.sample(plan, SAMPLE)
        changes = sorted(self.amendments.preview(plan), key=lambda each: not each.problem)
        shown = schemas.BulkPreview(
            count=count.number,
            exact=count.exact,
            sample=[reading.task(each) for each in sample],
            changes=[_change(each) for each in changes[:SAMPLE]],
            checked=len(changes),
            unfit=sum(bool(each.problem) for each in changes),
        )
        return Reply(content=shown)

    @endpoint(
        "POST",
        "/bulk-actions",
        _SEVERAL + "begin",
        tag="bulk actions",
        scope=Scope.OPERATE,
        act=AuditAction("started bulk action", ""),
        body=schemas.BulkActionBody,
        answers=STARTED,
        problems=(errors.SCOPE, errors.ASKED_TOO_OFTEN),
    )
    def begin(self, body: schemas.BulkActionBody) -> Reply:
        """Starts an action on the tasks that match now. `delete` needs the scope admin. Preview it first."""
        _demand_rights(Verb(body.action))
        plan = self._checked(body)
        demand_no_placeholder(plan.patch)
        if wrong := misfit(self.amendments.preview(plan)):
            raise refusals.invalid([refusals.field_error(("patch",), wrong)])
        return begin(self.bulk_actions, plan, body.rate, body.reason, self.amendments.in_words(plan))

    @endpoint(
        "GET",
        "/bulk-actions",
        _SEVERAL + "all_actions",
        tag="bulk actions",
        answers={
            200: Answer(
                description="The last hundred bulk actions, and older ones that are open.", model=schemas.BulkActionList
            )
        },
    )
    def all(self) -> Reply:
        """Lists bulk actions, newest first."""
        found, unreadable = self.bulk_actions.all()
        return Reply(content=schemas.BulkActionList(items=[_view(each) for each in found], unreadable=unreadable))

    @endpoint(
        "GET",
        "/bulk-actions/{action_id}",
        Across.ID,
        tag="bulk actions",
        answers=_SHOWN,
        problems=(refusals.NOT_FOUND,),
    )
    def show(self, action_id: str) -> Reply:
        """Shows a bulk action with its progress."""
        return Reply(content=_view(self._get(action_id)))

    @endpoint(
        "POST",
        "/bulk-actions/{action_id}/pause",
        Across.ID,
        tag="bulk actions",
        scope=Scope.OPERATE,
        act=AuditAction("paused bulk action", "{action_id}"),
        answers=_SHOWN,
        problems=(refusals.NOT_FOUND, refusals.CONFLICT),
    )
    def pause(self, action_id: str) -> Reply:
        """Pauses a bulk action: it processes no more tasks until it is resumed."""
        return self._change(action_id, "paused")

    @endpoint(
        "POST",
        "/bulk-actions/{action_id}/resume",
        Across.ID,
        tag="bulk actions",
        scope=Scope.OPERATE,
        act=AuditAction("resumed bulk action", "{action_id}"),
        answers=_SHOWN,
        problems=(refusals.NOT_FOUND, refusals.CONFLICT, errors.SCOPE),
    )
    def resume(self, action_id: str) -> Reply:
        """Resumes a paused bulk action, with the scope required to start it."""
        _demand_rights(self._get(action_id).verb)
        return self._change(action_id, "running")

    @endpoint(
        "POST",
        "/bulk-actions/{action_id}/undo",
        Across.ID,
        tag="bulk actions",
        scope=Scope.OPERATE,
        act=AuditAction("started undo of bulk action", "{action_id}"),
        answers=STARTED,
        problems=(refusals.NOT_FOUND, refusals.CONFLICT, errors.ASKED_TOO_OFTEN),
    )
    def undo(self, action_id: str) -> Reply:
        """Starts a bulk action that restores the tasks that this one cancelled or deleted. End this one first."""
        found = self._get(action_id)
        if found.open:
            raise Refusal(refusals.CONFLICT, f"the bulk action is {found.state}: abort it first")
        try:
            begun = self.bulk_actions.undo(found, by=actor())
        except ValueError as error:
            raise Refusal(refusals.CONFLICT, str(error)) from None
        return Reply(content=_view(self._get(begun)), status=202, headers={"Location": f"/bulk-actions/{begun}"})

    @endpoint(
        "POST",
        "/bulk-actions/{action_id}/abort",
        Across.ID,
        tag="bulk actions",
        scope=Scope.OPERATE,
        act=AuditAction("aborted bulk action", "{action_id}"),
        answers=_SHOWN,
        problems=(refusals.NOT_FOUND, refusals.CONFLICT),
    )
    def abort(self, action_id: str) -> Reply:
        """Ends a bulk action. Tasks that it has processed stay as they are."""
        return self._change(action_id, "aborted")

    @endpoint(
        "POST",
        "/queues/{name}/empty",
        _SEVERAL + "empty",
        tag="queues",
        scope=Scope.OPERATE,
        act=AuditAction("started bulk action", ""),
        body=schemas.EmptyQueueBody,
        answers=STARTED,
        problems=(refusals.NOT_FOUND, errors.ASKED_TOO_OFTEN),
    )
    def empty(self, name: str, body: schemas.EmptyQueueBody) -> Reply:
        """Cancels all waiting tasks of a queue in a bulk action. Pause it first to start no more of them."""
        wanted = Filter(queue=known_queue(name, self.bulk_actions.records.queues, self.default_priority))
        plan = Plan(verb=Verb.CANCEL, selection=Selection(wanted=wanted))
        return begin(self.bulk_actions, plan, body.rate, body.reason)

    def _checked(self, body: schemas.BulkPreviewBody) -> Plan:
        """Returns the plan in a body. Raises Refusal: 422 for a contradiction or an unknown queue."""
        if body.to is not None:
            demand_queue(body.to, "to", self.bulk_actions.records.queues)
        return _plan(body)

    def _change(self, action_id: str, state: str) -> Reply:
        found = self._get(action_id)
        if not self.bulk_actions.change(action_id, state):
            raise Refusal(refusals.CONFLICT, f"the bulk action is {found.state}: start another one")
        return Reply(content=_view(self._get(action_id)))

    def _get(self, action_id: str) -> BulkAction:
        """Returns an action. Raises Refusal: 404 when there is none, or its record is corrupt."""
        found = self.bulk_actions.get(action_id)
        if found is None:
            raise Refusal(refusals.NOT_FOUND, f"there is no bulk action {action_id}: the last hundred are kept")
        return found


def begin(bulk_actions: BulkActions, plan: Plan, rate: int, reason: str | None, change: str = "") -> Reply:
    """Starts a bulk action and returns the response with it; `change` describes how it changes data."""
    what, by = plan.selection.what + (f", {plan.limit} at most" if plan.limit else "") + change, actor()
    action_id = bulk_actions.begin(plan, what=what, by=by, rate=rate, reason=reason or f"bulk action of {by}")
    action = bulk_actions.get(action_id)
    if action is None:
        raise StoreUnavailable(f"bulk action {action_id} was removed while it began")
    noted = f"{plan.verb}: {action.total} tasks, {rate} per second: {what}"
    headers = {"Location": f"/bulk-actions/{action_id}"}
    return Reply(content=_view(action), status=202, headers=headers, noted=noted, about=action_id)


def _plan(body: schemas.BulkPreviewBody) -> Plan:
    """Returns the plan in a body. Raises Refusal: 422 for a contradiction."""
    named = body.filter
    given = named.model_dump(exclude_defaults=True, exclude={"partition"}) if named else {}
    if bool(body.task_ids) == bool(given):
        text = "give either a filter with at least one field, or task_ids"
        raise refusals.invalid([refusals.field_error(("filter",), text)])
    try:
        selection = Selection(ids=tuple(dict.fromkeys(body.task_ids or ())), wanted=named.wanted if named else Filter())
        more = body.model_dump(include={"canary"}, exclude_none=True) | {"patch": body.patch}
        more["limit"] = named.limit if named else None
        return Plan(verb=Verb(body.action), selection=selection, to=body.to or "", **more)
    except ValueError as error:
        raise refusals.invalid([refusals.field_error(("action",), str(error))]) from None


def _demand_rights(verb: Verb) -> None:
    """Raises Refusal: 403 for a deletion without the scope admin."""
    if verb is Verb.DELETE:
        demand_scope(Scope.ADMIN, "a bulk deletion")


def _change(made: Change) -> schemas.ChangeView:
    before, after = visible(made.before), visible(made.after)
    return schemas.ChangeView(task_id=made.task_id, before=before, after=after, problem=made.problem or None)


def _view(action: BulkAction) -> schemas.BulkActionView:
    return schemas.BulkActionView(
        action_id=action.id,
        action=action.verb,
        what=action.what,
        to=action.to or None,
        status=action.state,
        rate=action.rate,
        canary=action.canary or None,
        stopped_because=action.why or None,
        total=action.total,
        exact=action.exact,
        done=action.done,
        skipped=action.passed,
        unfit=action.unfit,
        outcomes=dict(action.outcomes),
        waiting=action.waiting,
        created_by=action.by,
        created_at=action.begun_at,
        ended_at=action.ended_at,
    )
