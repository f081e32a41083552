"""`python -m examples.distributed_queue leader` enqueues, `... worker` runs: as many of either as you like."""

from __future__ import annotations

import argparse
import os
import sys

from firmq import Client, new_task


def lead(url: str, name: str, orders: int, priority: str, stop_on_error: int | None) -> int:
    """Enqueues a batch, follows it to its end and prints what became of it; 1 when an execution failed."""
    with Client(url) as queue:
        executions = (
            # The order that ends in 13 has no amount, so there is a failure to look at.
            new_task("execute-order", {"order": n, "amount": None if n % 100 == 13 else n * 10}, priority=priority)
            for n in range(1, orders + 1)
        )
        sent = queue.batch(executions, name=name, stop_on_error=stop_on_error, then=new_task("count-executions", {}))
        print(f"enqueued {sum(item.accepted for item in sent)} of {orders} executions as batch {sent.batch_id}")
        counts: dict[str, int] = {}
        for seen in queue.batches.watch(sent.batch_id or ""):
            counts = {str(state): count for state, count in seen.counts.items() if count}
            print(f"{seen.progress:4.0%} {counts}")
        return 1 if counts.get("failed") else 0


def work(concurrency: int) -> None:
    """Becomes a worker with this example's handlers; SIGTERM and Ctrl-C let running tasks end."""
    own = {"TASK_MODULES": "examples.distributed_queue.tasks", "WORKER_EXECUTORS": str(concurrency)}
    os.execve(sys.executable, [sys.executable, "-m", "firmq", "worker"], {**os.environ, **own})  # noqa: S606


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.distributed_queue")
    modes = parser.add_subparsers(dest="mode", required=True)
    leader = modes.add_parser("leader", help="enqueue a batch and follow it")
    leader.add_argument("--url", default="http://localhost:8000", help="the gateway")
    leader.add_argument("--name", default="batch-exec-001")
    leader.add_argument("--orders", type=int, default=100)
    leader.add_argument("--priority", default="normal", help="critical, high, normal or low")
    leader.add_argument("--stop-on-error", type=int, metavar="N", help="cancel the rest after so many failures")
    worker = modes.add_parser("worker", help="run tasks until told to stop")
    worker.add_argument("--concurrency", type=int, default=10)
    given = parser.parse_args()
    if given.mode == "worker":
        work(given.concurrency)
    return lead(given.url, given.name, given.orders, given.priority, given.stop_on_error)


if __name__ == "__main__":
    sys.exit(main())
