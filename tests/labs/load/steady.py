"""A steady load: how much the product takes, and then half of that, for as long as you like."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from firmq.shared.domain.task import TaskState
from tests.labs.load.clients import TASKS_PER_REQUEST, Client, Ledger, stop_all
from tests.labs.load.counts import Start, by_minutes, counts, differences, starts, stored
from tests.labs.load.samples import Samples, Visitor
from tests.labs.load.site import Site, site

CLIENTS = 8
MOST_WAITING = 1000
"""Tasks that may wait while the capacity is measured, or the clients would outrun the workers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much for how long."""

    tasks_per_second: float
    warm_up: float
    """Seconds before anything is measured: until as much is removed as comes (60 s, for Idempotency-Keys)."""
    seconds: float
    between_samples: float = 5.0
    between_visits: float = 5.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What a run left behind for who judges it."""

    plan: Plan
    ledgers: Sequence[Ledger]
    samples: Samples
    begun: Sequence[Start]
    counts: dict[str, dict[str, int]]
    stored: int
    measured_from: float
    complaints: list[str]


def run(plan: Plan, folder: Path) -> Outcome:
    """The load from start to end, and everything counted."""
    with site(folder, **plan.environment) as place:
        rate = plan.tasks_per_second / TASKS_PER_REQUEST / CLIENTS
        clients = [Client(number, place.ports["gateway"], rate) for number in range(CLIENTS)]
        visitor = Visitor(place, plan.between_visits)
        for thread in (*clients, visitor):
            thread.start()
        _let_pass(plan.warm_up, clients)
        measured_from = time.monotonic()
        samples = Samples(place, plan.between_samples)
        samples.start()
        _let_pass(plan.seconds, clients)
        samples.stop()
        stop_all(clients)
        visitor.stop()
        return _counted(plan, place, [client.ledger for client in clients], samples, measured_from, visitor.odd)


def _let_pass(seconds: float, clients: Sequence[Client]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert all(client.is_alive() for client in clients), "a client ended by itself"
        time.sleep(min(0.5, max(0.0, end - time.monotonic())))


def _counted(
    plan: Plan, place: Site, ledgers: Sequence[Ledger], samples: Samples, measured_from: float, odd: Sequence[str]
) -> Outcome:
    place.system.all_ended()
    place.stop("housekeeper")  # from here on nobody removes anything
    begun = starts(place)
    found = counts(place, ledgers, begun)
    kept, wrong = stored(place, ledgers)
    complaints = [*samples.gone, *odd, *(each for ledger in ledgers for each in ledger.odd)]
    complaints += differences(found, sum(ledger.unanswered for ledger in ledgers))
    return Outcome(plan, ledgers, samples, begun, found, kept, measured_from, complaints + wrong)


def capacity(folder: Path, seconds: float, **environment: str) -> float:
    """Tasks a second that are taken and run when each client sends as soon as it is answered."""
    with site(folder, **environment) as place:
        room, over = threading.Event(), threading.Event()
        watch = threading.Thread(target=partial(_watch, place, room, over), daemon=True)
        clients = [Client(number, place.ports["gateway"], may_send=room.is_set) for number in range(CLIENTS)]
        for thread in (watch, *clients):
            thread.start()
        _let_pass(5, clients)  # until everybody has hit his stride
        first, began = _ended(place), time.monotonic()
        _let_pass(seconds, clients)
        rate = (_ended(place) - first) / (time.monotonic() - began)
        stop_all(clients)
        over.set()
        watch.join()
        return rate


def _watch(place: Site, room: threading.Event, over: threading.Event) -> None:
    while not over.wait(0.05):
        full = sum(count for state, count in place.system.records.counts().items() if not state.ended) > MOST_WAITING
        room.clear() if full else room.set()


def _ended(place: Site) -> int:
    """Ever; also those that were removed since."""
    found = by_minutes(place)
    return found[TaskState.COMPLETED] + found[TaskState.FAILED]
