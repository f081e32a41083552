"""What each step costs as the store grows: `python -m tests.labs.bench.growth`.

A step that costs the same with ten thousand tasks and with a million is what keeps a backlog from becoming an outage.
One Redis, filled further from size to size; each step is timed from Python, one at a time, so the figures include a
round trip (about 0.1 ms). Medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from redis import Redis

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.dead_letters import purge, requeue
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Filter, Records
from tests.support.attempt_ends import claiming, ended, report

WEIGHTS = {"critical": 6, "high": 4, "normal": 3, "low": 1}
BATCH = 100
DATA = '{"to":"somebody@example.org","body":"' + "x" * 160 + '"}'


class Store:
    """A store that is filled further and further, nine of ten tasks waiting, one of ten dead-lettered."""

    def __init__(self, redis: Redis) -> None:
        self.scripts = Scripts(redis)
        self.queues = Queues(self.scripts, WEIGHTS)
        self.records = Records(self.scripts, list(WEIGHTS))
        self.size = 0

    def submit(self, count: int, queue: str = "low") -> list[str]:
        tasks = [
            NewTask(
                id=new_task_id(), type=f"type-{n % 10}", data=DATA, queue=queue, tags=("tagged",) if n % 10 == 0 else ()
            )
            for n in range(count)
        ]
        self.queues.submit(tasks)
        return [task.id for task in tasks]

    def claim(self, count: int, queue: str = "high") -> tuple[str, list[bytes]]:
        token = uuid.uuid4().hex
        reply = self.scripts.call("claim", *claiming("bench", token, 60_000_000, count, 1 << 24, queue, count))
        return token, [row[0] for row in reply[3]]

    def report(self, token: str, ids: Sequence[bytes], kind: str) -> None:
        error = '{"type":"E","message":"m"}' if kind == "failed" else None
        for at in range(0, len(ids), BATCH):
            ends = [
                ended(each, token, kind, '{"outcome":"completed"}', error=error, result="bnVsbA==")
                for each in ids[at : at + BATCH]
            ]
            report(self.scripts, *ends, worker="bench")

    def fill(self, size: int) -> None:
        dead = (size - self.size) // 10
        self.submit(size - self.size - dead)
        while dead:
            count = min(dead, 1000)
            self.submit(count, "high")
            token, ids = self.claim(count)
            self.report(token, ids, "failed")
            dead -= count
        self.size = size


def measure(step: Callable[[], object], repeat: int) -> float:
    """The median time of a step in milliseconds."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def steps(store: Store) -> dict[str, float]:
    """Each step's cost at the present size."""
    waiting = iter(store.submit(600))
    page = store.records.page
    some_cursor = page(Filter(), limit=50).next_cursor
    figures = {
        "submit 1": measure(lambda: store.submit(1), 200),
        f"submit {BATCH}": measure(lambda: store.submit(BATCH), 50),
        "cancel 1": measure(lambda: store.queues.cancel(next(waiting), "bench"), 200),
        "read one task": measure(lambda: store.records.get(next(waiting)), 200),
        "page of all tasks": measure(lambda: page(Filter(), limit=50), 100),
        "second page of all tasks": measure(lambda: page(Filter(), limit=50, cursor=some_cursor), 100),
        "page of one type": measure(lambda: page(Filter(type="type-3"), limit=50), 100),
        "page of one tag": measure(lambda: page(Filter(tag="tagged"), limit=50), 100),
        "page of pending": measure(lambda: page(Filter(state=TaskState.PENDING), limit=50), 100),
        "page of dead letters": measure(lambda: page(Filter(state=TaskState.FAILED), limit=50), 100),
        "page that finds nothing": measure(lambda: page(Filter(type="type-3", tag="no such tag"), limit=50), 20),
        "counts of all states": measure(store.records.counts, 100),
    }
    claims: list[tuple[str, list[bytes]]] = []
    figures[f"claim {BATCH}"] = measure(lambda: claims.append(store.claim(BATCH, "low")), 40)
    to_report = iter(claims)
    figures[f"report {BATCH} completed"] = measure(lambda: store.report(*next(to_report), "completed"), 20)
    figures[f"report {BATCH} failed"] = measure(lambda: store.report(*next(to_report), "failed"), 20)
    dead = [item.id for item in page(Filter(state=TaskState.FAILED), limit=200).items]
    requeued, purged = iter(dead[:100]), iter(dead[100:])
    figures["requeue a dead letter"] = measure(lambda: requeue(store.scripts, [next(requeued)]), 100)
    figures["remove a dead letter"] = measure(lambda: purge(store.scripts, "failed", [next(purged)]), 100)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of stored tasks, growing")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedRedis(data_dir=Path(folder)) as server,
        Redis.from_url(server.url, protocol=2) as client,
    ):
        store = Store(client)
        columns = []
        for size in sizes:
            store.fill(size)
            columns.append(steps(store))
    print(f"| milliseconds, median | {' | '.join(f'{size:,} tasks' for size in sizes)} |")
    print(f"|---|{'---:|' * len(sizes)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(f'{column[name]:.2f}' for column in columns)} |")


if __name__ == "__main__":
    main()
