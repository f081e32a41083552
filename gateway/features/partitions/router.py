"""The router: sends each request to the partition it concerns, or to all of them and merges their responses.

An id names its partition, so most requests go to one app unchanged. Lists and counts come from every partition that
answers; the numbers of those that do not are in `unavailable_partitions`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from io import BytesIO
from pkgutil import resolve_name
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from redis.exceptions import RedisError

from firmq.gateway.features.partitions import merging
from firmq.gateway.features.partitions.members import Member, Members
from firmq.gateway.features.partitions.placement import Placement
from firmq.gateway.http import errors
from firmq.gateway.http.across import PART, POSITIONS, Across, Answer, Call, Environ, Merge, Store
from firmq.gateway.routes.tasks import bad_cursor
from firmq.gateway.schemas.values import PageQuery
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.errors import StoreUnavailable
from firmq.shared.features.partitions.lookup import locate_all
from firmq.shared.features.partitions.merged_pages import order, order_of_entry, order_of_name, read_cursor
from firmq.shared.features.partitions.placement import name_of
from firmq.shared.features.partitions.preference import not_answering, preferred
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.submissions import parents_in

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

log = logging.getLogger(__name__)

DEFAULT_LIMIT = int(PageQuery.model_fields["limit"].default)


Handler = Callable[["Router", Call], "Answer | Member"]
"""Returns an answer, or the partition whose app answers."""


class Router:
    """The WSGI app of a gateway with several partitions."""

    def __init__(self, members: Members, config: Mapping[str, Any]) -> None:
        """`config` is the configuration that the apps share."""
        self.members = members
        self.config = config
        self.placement = Placement(members.all, self.locate_all)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self.members.watch()
        environ.setdefault("HTTP_X_REQUEST_ID", token_hex(8))
        asked = {**environ, "REQUEST_METHOD": "GET"} if environ["REQUEST_METHOD"] == "HEAD" else environ
        try:
            found = self._handle(asked)
        except Refusal as refusal:
            found = _refused(refusal, environ)
        except StoreUnavailable as error:
            found = _refused(refusals.unavailable(error), environ)
        except Exception:
            request_id = environ["HTTP_X_REQUEST_ID"]
            log.exception("request failed", extra={"request_id": request_id})
            text = f"internal error: search the gateway's log for {request_id}"
            found = _refused(Refusal(errors.INTERNAL, text), environ)
        if isinstance(found, Member):
            return found.app({**asked, "REQUEST_METHOD": environ["REQUEST_METHOD"]}, start_response)
        headers = [pair for pair in found.headers if pair[0].lower() != "content-length"]
        start_response(
            f"{found.status} {HTTPStatus(found.status).phrase}", [*headers, ("Content-Length", str(len(found.body)))]
        )
        return [found.body] if environ["REQUEST_METHOD"] != "HEAD" else []

    def _handle(self, environ: Environ) -> Answer | Member:
        first = self.members.first
        across, named = first.admitted(environ)
        if across is Across.FIRST:
            return first
        handler = resolve_name(across) if isinstance(across, str) else HANDLERS[across]
        return handler(self, Call(environ, named, _body(environ, self.config["MAX_CONTENT_LENGTH"])))

    # --- one partition ---

    def locate(self, task_id: str) -> Member:
        """Returns the partition of a task, batch or bulk action; for an unknown id, a partition that may have it."""
        return self.locate_all([task_id])[task_id]

    def locate_all(self, ids: Iterable[str]) -> dict[str, Member]:
        """Returns the same for many ids."""
        found = self.holders(ids)
        away = self.members.away()
        elsewhere = self.members.all[away[0]] if away else self.members.first
        return {each: elsewhere if member is None else member for each, member in found.items()}

    def holders(self, ids: Iterable[str]) -> dict[str, Member | None]:
        """Returns the partitions that ids name, reachable or not; else those that have their records."""
        places: dict[str, int | None] = {each: store_of_id(each) for each in ids}
        unknown = [each for each, number in places.items() if number not in self.members.all]
        found, lost = locate_all(unknown, {each.number: each.redis for each in self.members.answering()})
        for number in lost:
            self.members.all[number].answers = False
        places |= found
        return {each: None if number is None else self.members.all[number] for each, number in places.items()}

    def holder_of_schedule(self, name: str) -> Member | None:
        """Returns the partition that has a schedule of this name."""
        for member in self.members.answering():
            try:
                if member.redis.exists(member.keys.schedule(name)):
                    return member
            except (RedisError, OSError):
                member.answers = False
        return None

    @property
    def first(self) -> Member:
        """Returns the first partition that answers, else the first."""
        return self.members.first

    def home(self, task: Mapping[str, Any], key: str, parent: Store | None) -> Member:
        """Returns the partition of a new task: by its options, else by the key; `parent` is its parent's, if known.

        Raises Refusal while a draining partition that may have stored it already does not answer.
        """
        if name := name_of(task, None):
            home = self.placement.order(name)[0]
        elif parent_id := next(parents_in([task]), None):
            home = self.members.all[parent.number] if parent else self.locate(parent_id)
        else:
            home = self.placement.open_home(key)
        demand_drained(self, name or key, home)
        return home

    def store_in_order(
        self, task: Mapping[str, Any], key: str, first: Store, environ: Environ, body: bytes, about: Environ
    ) -> Answer:
        """Returns the answer of the first partition that takes a task, beginning with `first`."""
        order = dict.fromkeys([self.members.all[first.number], *self.placement.order(name_of(task, None) or key)])
        return first_to_store(list(order), environ, body, about)

    def named(self, number: object, field: tuple[str, ...]) -> Member:
        """Returns the partition that a field of a body names. Raises Refusal (422)."""
        if type(number) is not int or number not in self.members.all:
            text = f"must name one of the partitions {', '.join(map(str, self.members.all))}"
            raise refusals.invalid([refusals.field_error(field, text)])
        return self.members.all[number]

    # --- all partitions ---

    def ask(self, call: Call) -> list[Answer]:
        """Returns the answers of all reachable partitions, or the first partition's answer if there is none."""
        members = self.members.answering() or [self.members.first]
        return [each.call(call.environ, call.body, {PART: at}) for at, each in enumerate(members)]

    def demand_all(self) -> None:
        """Raises Refusal unless every partition answers."""
        if away := self.members.away():
            text = f"{not_answering(away)}, and this change must be made in all partitions: repeat it when all answer"
            refusal = Refusal(refusals.STORE, text, headers={"Retry-After": "2"})
            raise refusals.unfinished(refusal, sent=False)

    def away(self, answers: Sequence[Answer]) -> list[int]:
        """Returns the numbers of the unreachable partitions, including those that failed in one of these answers."""
        return sorted({*self.members.away(), *(each.number for each in answers if each.is_away)})

    def combined(self, answers: Sequence[Answer], merge: Merge) -> Answer:
        """Merges the documents of all partitions into one answer; without any, returns the first error."""
        well = [each for each in answers if each.well]
        if not well:
            return answers[0]
        merged = merge({each.number: each.document for each in well})
        if away := self.away(answers):
            merged = {**merged, "unavailable_partitions": away}
        return Answer(well[0].number, well[0].status, well[0].headers, json.dumps(merged).encode() + b"\n")


def _body(environ: Environ, most: int) -> bytes:
    """Reads a body, at most one byte more than `most`, and leaves it for the app that a request is passed to."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal() and not environ.get("wsgi.input_terminated"):
        return b""
    body = bytes(environ["wsgi.input"].read(min(int(length or most + 1), most + 1)))
    environ["wsgi.input"] = BytesIO(body)
    return body


def _refused(refusal: Refusal, environ: Environ) -> Answer:
    body = errors.document(refusal, instance=environ.get("PATH_INFO", "/"), request_id=environ["HTTP_X_REQUEST_ID"])
    headers = [("Content-Type", errors.MEDIA_TYPE), *refusal.headers.items()]
    return Answer(-1, refusal.kind.status, headers, body)


# --- handlers ---


def of_id(router: Router, call: Call) -> Member:
    """Passes a request to the partition of the id in its path."""
    return router.locate(next(said for name, said in call.named.items() if name.endswith("_id")))


def merged(merge: Merge) -> Handler:
    """Returns a handler that queries all partitions and merges their documents."""

    def handle(router: Router, call: Call) -> Answer:
        return router.combined(router.ask(call), merge)

    return handle


def one_document(merge: Merge) -> Handler:
    """Returns the same for an object that not every partition has; the others are left out."""

    def handle(router: Router, call: Call) -> Answer:
        answers = router.ask(call)
        known = [each for each in answers if each.status != 404] or answers[:1]
        bad = next((each for each in known if not each.well and not each.is_away), None)
        return bad or router.combined(known, merge)

    return handle


def paged(key: Callable[[str], Any] = order) -> Handler:
    """Returns a handler that merges the pages of all partitions."""

    def handle(router: Router, call: Call) -> Answer:
        query = parse_qs(call.environ.get("QUERY_STRING", ""), keep_blank_values=True)
        try:
            before = read_cursor(query.get("cursor", [None])[0], router.members.all)
        except ValueError:
            raise bad_cursor() from None
        limit = query.get("limit", [""])[0]
        left = [number for number in router.members.away() if before[number] is not None]
        if left and all(before[each.number] is None for each in router.members.answering()):
            text = f"this list continues on a partition that is unreachable ({not_answering(left)}): try again later"
            raise Refusal(refusals.STORE, text, headers={"Retry-After": "2"})
        answers, positions = _ask_for_pages(router, call, query, before)
        if bad := next((each for each in answers if not each.well and not each.is_away), None):
            return bad
        most = int(limit) if limit.isdecimal() else DEFAULT_LIMIT
        return router.combined(answers, lambda parts: merging.page(parts, positions, before, most, key))

    return handle


def _ask_for_pages(
    router: Router, call: Call, query: Mapping[str, list[str]], before: Mapping[int, str | None]
) -> tuple[list[Answer], dict[int, list[str]]]:
    answers, positions = [], {}
    members = [each for each in router.members.answering() if before[each.number] is not None]
    for at, member in enumerate(members or [router.members.first]):
        wanted = {**query, "cursor": [before[member.number] or ""]}
        own = {**call.environ, "QUERY_STRING": urlencode({n: v for n, v in wanted.items() if v != [""]}, doseq=True)}
        positions[member.number] = found = list[str]()
        answers.append(member.call(own, about={PART: at, POSITIONS: found}))
    return answers, positions


def placed(of: Callable[[Placement, Any, str | None], list[Member]]) -> Handler:
    """Returns a handler that chooses the partition of a submission."""

    def handle(router: Router, call: Call) -> Answer | Member:
        order = of(router.placement, _read(call.body), call.environ.get("HTTP_IDEMPOTENCY_KEY"))
        return first_to_store(order, call.environ, call.body) if order else _untied(router, call)

    return handle


def _read(body: bytes) -> Any:
    """Returns the parsed body; None for invalid JSON, for which the app returns the error."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _untied(router: Router, call: Call) -> Answer:
    """Places a task in any partition; tries the next one after an answer that nothing was changed."""
    for member in (candidates := router.placement.candidates()):
        answer = member.call(call.environ, call.body)
        if answer.kind == refusals.NO_PLACE.type and member is not candidates[-1]:
            member.is_draining = True
            continue
        if not (answer.is_away and answer.kind == refusals.STORE.type):
            return answer
        member.answers = False
        if member is candidates[-1] or not answer.document.get(refusals.UNCHANGED):
            return answer
    raise AssertionError("unreachable: there is a candidate")


def first_to_store(order: Sequence[Member], environ: Environ, body: bytes, about: Environ | None = None) -> Answer:
    """Returns the answer of the first of these partitions that is not draining, or already holds the submission."""
    answers = (member.call(environ, body, about) for member in order)
    answer = next(answers)
    while answer.kind == refusals.NO_PLACE.type and (following := next(answers, None)):
        answer = following
    return answer


def schedule(router: Router, call: Call) -> Member:
    """Passes a request to the partition that has a schedule, else to the one that its name prefers.

    Raises Refusal if a partition that may have it is unreachable.
    """
    name = call.named["name"]
    if holder := router.holder_of_schedule(name):
        return holder
    home = router.placement.open_home(name)
    demand_drained(router, name, home)
    return home


def demand_drained(router: Router, name: str, home: Member) -> None:
    """Requires answers from the draining partitions that a name prefers to its home, and from a draining home.

    An unreachable one may hold the object, which would then be stored twice. Raises Refusal.
    """
    places = preferred(name, router.members.all)
    before = [router.members.all[number] for number in places[: places.index(home.number) + 1]]
    away = next((each for each in before if each.is_draining and not each.answers), None)
    if away is not None:
        text = (
            f"partition {away.number} is draining and does not answer; it may already hold this schedule or outbox "
            "row: try again when it answers"
        )
        raise refusals.unfinished(Refusal(refusals.STORE, text, headers={"Retry-After": "2"}), sent=False)


def everywhere(merge: Merge) -> Handler:
    """Returns a handler of a change that every partition must make.

    While one is unreachable, the change is refused before any partition makes it: it would not apply there.
    """

    def handle(router: Router, call: Call) -> Answer:
        router.demand_all()
        answers = router.ask(call)
        known = [each for each in answers if each.status != 404] or answers[:1]
        bad = next((each for each in known if not each.well), None)
        return bad or router.combined(known, merge)

    return handle


def any_holder(router: Router, call: Call) -> Answer:
    """Returns the answer of the first partition that knows the object in the path and accepts the request."""
    answers = router.ask(call)
    return next((each for each in answers if each.well), next((a for a in answers if a.status != 404), answers[0]))


def health(router: Router, call: Call) -> Answer:
    """Returns the health of all partitions, also unreachable ones; the system is well while one of them is."""
    answers = [each.call(call.environ, about={PART: at}) for at, each in enumerate(router.members.all.values())]
    shown = [each for each in answers if each.status in (200, 503) and "status" in each.document]
    if not shown:
        return answers[0]
    merged = merging.health({each.number: each.document for each in shown})
    status = 503 if merged["status"] == "unavailable" else 200
    return Answer(-1, status, shown[0].headers, json.dumps(merged).encode() + b"\n")


def texts(router: Router, call: Call) -> Answer:
    """Returns the exports of all partitions one after the other, with a single heading."""
    answers = router.ask(call)
    well = [each for each in answers if each.well]
    if not well:
        return answers[0]
    kind = call.environ["PATH_INFO"].rstrip("/").rpartition(".")[2]
    if kind == "md":
        body = merging.markdown([each.body.decode() for each in well]).encode()
    else:
        body = b"".join(
            each.body.split(b"\n", 1)[-1] if kind == "csv" and at else each.body for at, each in enumerate(well)
        )
    return Answer(well[0].number, 200, well[0].headers, body)


HANDLERS: Mapping[Across, Handler] = {
    Across.ID: of_id,
    Across.SCHEDULE: schedule,
    Across.TASK: placed(Placement.of_task),
    Across.BATCH: placed(Placement.of_batch),
    Across.ALL: everywhere(merging.together),
    Across.STEP_DOWN: everywhere(merging.first),
    Across.ONE: one_document(merging.together),
    Across.HOLDER: any_holder,
    Across.PAGES: paged(),
    Across.PAGES_BY_ENTRY: paged(order_of_entry),
    Across.PAGES_BY_NAME: paged(order_of_name),
    Across.BY_NAME: merged(merging.by("name")),
    Across.KEYS: merged(merging.by("id")),
    Across.WORKERS: merged(merging.by("name", without=("held", "running"))),
    Across.LOCKS: merged(merging.numbered),
    Across.WAITING: merged(merging.waiting),
    Across.BREAKDOWN: merged(merging.breakdown),
    Across.TIMELINE: merged(merging.timeline),
    Across.CHECKS: merged(merging.health_detail),
    Across.HEALTH: health,
    Across.TEXTS: texts,
}
"""The handler of each kind of endpoint, except those that the first partition answers alone."""
