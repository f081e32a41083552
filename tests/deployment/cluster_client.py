"""A service of the cluster that submits tasks: `make verify-kubernetes` runs it in a pod of a namespace that may.

`load RATE SECONDS` submits tasks of SECONDS, RATE a second, until its standard input ends. It prints the id of each
accepted task; a refused one is sent again with its key until it is accepted. The last line counts refusals.
`outcome` reads ids and, when all have ended, prints how many ended how.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from firmq import Client
from firmq.shared.domain.task_state import ENDED
from firmq.shared.submission.problems import NotFound, Problem, Unreachable

THREADS = 4
PATIENCE = 180.0
"""Seconds for which a refused submission is sent again, and for which tasks may take to end."""
FINAL = {*ENDED, "lost"}

refused: Counter[str] = Counter()
times: list[float] = []


def load(rate: float, seconds: float) -> None:
    """Submits until standard input ends."""
    over = threading.Event()
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(submit, over, rate / THREADS, seconds) for _ in range(THREADS)]
        sys.stdin.read()
        over.set()
    for each in running:
        each.result()
    print(json.dumps({"refused": refused, "slowest": round(max(times), 1)}), flush=True)


def submit(over: threading.Event, rate: float, seconds: float) -> None:
    """Submits one task after the other, each until it is accepted."""
    client = Client(patience=0)
    due = time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        due = max(due + 1 / rate, time.monotonic() - 1)
        key, began = uuid.uuid4().hex, time.monotonic()
        while True:
            try:
                task = client.submit("slowly", {"seconds": seconds}, idempotency_key=key)
                sys.stdout.write(f"{task.task_id}\n")
                sys.stdout.flush()
                break
            except (Problem, Unreachable) as error:
                refused[f"{getattr(error, 'status', '')} {error}"[:90]] += 1
                if time.monotonic() > began + PATIENCE:
                    raise
                time.sleep(0.2)
        times.append(time.monotonic() - began)


def outcome() -> None:
    """Prints how many of the tasks ended in which state; those that have not ended in time count as what they are."""
    client, end = Client(), time.monotonic() + PATIENCE
    waiting, found = sys.stdin.read().split(), Counter[str]()
    with ThreadPoolExecutor(THREADS) as threads:
        while waiting:
            states = dict(zip(waiting, threads.map(lambda each: state_of(client, each), waiting), strict=True))
            late = time.monotonic() > end
            found.update(state for state in states.values() if late or state in FINAL)
            waiting = [] if late else [each for each, state in states.items() if state not in FINAL]
            time.sleep(0.5)
    print(json.dumps(found))


def state_of(client: Client, task_id: str) -> str:
    """Returns the state of a task, and `lost` when there is none."""
    try:
        return client.get(task_id).status
    except NotFound:
        return "lost"


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(float(sys.argv[2]), float(sys.argv[3]))
    else:
        outcome()
