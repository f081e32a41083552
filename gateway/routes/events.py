"""Endpoints for event streams of a task or a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from flask import g, request

from firmq.gateway import present
from firmq.gateway.events.broadcaster import MEDIA_TYPE, Broadcaster, Observation, Snapshot, Subject, Waiting, Watch
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, as_json, endpoint
from firmq.shared.domain.task import TaskSummary
from firmq.shared.errors import BatchNotFound, TaskNotFound
from firmq.shared.stores.batches import Batch, Batches
from firmq.shared.stores.tasks import Records
from firmq.shared.submission import reading, refusals

ANSWERS = {
    200: Answer(description="Events (text/event-stream) until it has ended.", media_type=MEDIA_TYPE),
    204: Answer(description="Last-Event-ID is the id of the last event: no more events follow.", media_type=""),
}

UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Makes nginx forward each event immediately."""


Read = Callable[[Sequence[tuple[Watch, bool]]], Iterable[Observation]]
"""Returns what is seen for each watch of a kind of subjects, given whether the task has ended."""


class Poller:
    """Reads tasks and batches in one round trip each, and builds events only for changes."""

    def __init__(self, records: Records, batches: Batches) -> None:
        self.records = records
        self.batches = batches
        self.kinds: dict[str, Read] = {}
        """What features add: kinds of subjects that are about a task."""
        self.seen: dict[Subject, tuple[TaskSummary | Batch, Snapshot]] = {}

    def __call__(self, watched: Collection[Watch]) -> Iterator[tuple[Watch, Observation]]:
        """Yields the state of each subject that exists."""
        subjects = {subject for subject, _ in watched}
        tasks = self.records.summaries([name for kind, name in subjects if kind == "task"])
        batches = self.batches.some([name for kind, name in subjects if kind == "batch"])
        found: dict[Subject, TaskSummary | Batch] = {("task", each.id): each for each in tasks}
        found.update({("batch", each.id): each for each in batches})
        observations = {subject: self._snapshot(subject, each) for subject, each in found.items()}
        if len(subjects) > 1:
            self.seen = {subject: (found[subject], snapshot) for subject, snapshot in observations.items()}
        yield from ((watch, observations[watch[0]]) for watch in watched if watch[0] in observations)
        names = {name for kind, name in subjects if kind in self.kinds}
        # The state first: a task that has ended by then writes nothing more.
        ended = {each.id: each.state.ended for each in self.records.summaries(list(names))}
        for kind, read in self.kinds.items():
            wanted = [(each, ended[each[0][1]]) for each in watched if each[0][0] == kind and each[0][1] in ended]
            yield from zip((watch for watch, _ in wanted), read(wanted), strict=True)

    def _snapshot(self, subject: Subject, found: TaskSummary | Batch) -> Snapshot:
        known = self.seen.get(subject)
        return known[1] if known is not None and known[0] == found else _snapshot(found)


class EventRoutes:
    """Server-Sent Events of a task or a batch, or of what a feature adds to `poller`."""

    def __init__(self, poller: Poller, stopping: threading.Event) -> None:
        self.poller = poller
        self.broadcaster = Broadcaster(poller, stopping)

    @endpoint(
        "GET",
        "/tasks/{task_id}/events",
        Across.ID,
        tag="tasks",
        answers=ANSWERS,
        problems=(refusals.NOT_FOUND, errors.BUSY),
        events=True,
    )
    def task(self, task_id: str) -> Reply:
        """Streams the state and progress of a task as Server-Sent Events until it has ended.

        Events `state` and, last, `end` have the task as GET /tasks lists it. An event is the whole current state; of
        changes within a quarter of a second only the last is sent. The response is 503 when the maximum number of
        streams is open, or the client of the API key already holds as many as are free.
        """
        return self.watch(("task", task_id), TaskNotFound)

    @endpoint(
        "GET",
        "/batches/{batch_id}/events",
        Across.ID,
        tag="batches",
        answers=ANSWERS,
        problems=(refusals.NOT_FOUND, errors.BUSY),
        events=True,
    )
    def batch(self, batch_id: str) -> Reply:
        """Streams the progress of a batch as Server-Sent Events until all its tasks have ended.

        Events `state` and, last, `end` have the batch as GET /batches/{batch_id} shows it.
        """
        return self.watch(("batch", batch_id), BatchNotFound)

    def watch(self, subject: Subject, missing: type[TaskNotFound | BatchNotFound]) -> Reply:
        """Streams the new events of a subject until it has ended. Raises `missing`."""
        if request.method == "HEAD":
            return Reply(content=b"", media_type=MEDIA_TYPE)
        try:
            stream, first = self.broadcaster.open(subject, request.headers.get("Last-Event-ID"), g.get("client", ""))
        except KeyError:
            raise missing(id=subject[1]) from None
        if stream is None:
            return Reply(content=first, status=200 if first else 204, media_type=MEDIA_TYPE)
        hold = request.environ.get("firmq.hold")
        if hold is not None:
            hold(stream)
            return Reply(content=iter([first]), media_type=MEDIA_TYPE, headers=UNBUFFERED)
        sink = Waiting()
        sink.send(first)
        stream.begin(sink)
        return Reply(content=iter(sink), media_type=MEDIA_TYPE, headers=UNBUFFERED)


def _snapshot(found: TaskSummary | Batch) -> Snapshot:
    if isinstance(found, Batch):
        return Snapshot(as_json(present.batch(found)), found.status == "ended")
    return Snapshot(as_json(reading.task(found)), found.state.ended)
