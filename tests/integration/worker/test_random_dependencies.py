"""Tasks that depend on each other at random, with failures and crashes, while workers are killed.

With TEST_LONG=1 they are two thousand.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from firmq.shared.domain.task import NewTask, On, OnParentFailure, Outcome, Parent, TaskState, new_task_id
from firmq.shared.redis.client import text
from tests.support.harness import System, wait_until
from tests.support.keys import keys

TASKS = 2000 if os.environ.get("TEST_LONG") else 700
KINDS = ("ok",) * 88 + ("fail",) * 6 + ("flaky",) * 3 + ("crash once",) * 2 + ("crash",)
S = TaskState


@dataclass(frozen=True)
class Node:
    """A task of the graph and what will become of it if it runs."""

    task: NewTask
    kind: str


def grow(random: Random, file: Path) -> list[Node]:
    """A graph in which every task depends on some of the hundred before it."""
    nodes: list[Node] = []
    for _ in range(TASKS):
        kind = random.choice(KINDS)
        parents = random.sample(nodes[-100:], min(len(nodes), random.choice((0, 1, 1, 2, 3))))
        task_id = new_task_id()
        task = NewTask(
            id=task_id,
            type="step",
            data=json.dumps({"file": str(file), "kind": kind}),
            queue="normal",
            retry={"max_retries": 1 if kind == "flaky" else 0},
            parents=tuple(Parent(task_id=each.task.id, on=random.choice(list(On))) for each in parents),
            on_parent_failure=random.choice((OnParentFailure.CANCEL, OnParentFailure.RELEASE)),
        )
        nodes.append(Node(task, kind))
    return nodes


def foretell(nodes: Sequence[Node]) -> Mapping[str, TaskState]:
    """How each must end."""
    ends: dict[str, TaskState] = {}
    for node in nodes:
        unmet = [each for each in node.task.parents if each.on is On.SUCCESS and ends[each.task_id] is not S.COMPLETED]
        if unmet and node.task.on_parent_failure is OnParentFailure.CANCEL:
            ends[node.task.id] = S.CANCELLED
        else:
            ends[node.task.id] = S.FAILED if node.kind in ("fail", "crash") else S.COMPLETED
    return ends


def test_tasks_of_a_random_graph_run_after_their_parents(system: System, tmp_path: Path) -> None:
    seed = int(os.environ.get("TEST_SEED", Random().randrange(10**9)))
    print(f"seed {seed}")
    ledger = tmp_path / "ledger"
    ledger.touch()
    nodes = grow(Random(seed), ledger)
    settings = {"LEASE_TIME": "2", "MAX_CRASHES": "5", "WORKER_EXECUTORS": "2"}
    workers = [system.start_worker(**settings) for _ in range(2)]
    keeper = system.start_housekeeper(MAX_CRASHES="5")
    system.queues.submit([node.task for node in nodes])
    for share in (0.2, 0.4, 0.6):
        wait_until(partial(have_ended, system, share), f"{share:.0%} have ended", 120)
        victim = workers.pop(0)
        victim.kill()
        victim.wait()
        if share == 0.4:
            keeper.kill()
            keeper.wait()
            keeper = system.start_housekeeper(MAX_CRASHES="5")
        workers.append(system.start_worker(**settings))
    system.all_ended(180)
    check(system, nodes, ledger)


def have_ended(system: System, share: float) -> bool:
    counts = system.records.counts()
    return sum(count for state, count in counts.items() if state.ended) > share * TASKS


def only_dead_letters_want_results(system: System, ends: Mapping[str, S]) -> bool:
    waited_for = system.redis.keys(keys.children("*"))
    return all(ends[text(each)] is S.FAILED for key in waited_for for each in system.redis.zrange(key, 0, -1))


def check(system: System, nodes: Sequence[Node], ledger: Path) -> None:
    """Against the ledger that the handlers wrote, line by line in the order in which it happened."""
    lines: dict[str, list[int]] = defaultdict(list)
    starts: Counter[str] = Counter()
    for at, entry in enumerate(ledger.read_text().splitlines()):
        task_id, what = entry.split()
        lines[task_id].append(at)
        starts[task_id] += what == "start"
    ends = foretell(nodes)
    for node in nodes:
        found = system.records.get(node.task.id)
        assert found.summary.state is ends[node.task.id], (node, found)
        for parent in node.task.parents if lines[node.task.id] else ():
            behind = lines[parent.task_id]
            assert not behind or behind[-1] < lines[node.task.id][0], (node, "began before its parent had ended")
        outcomes = [each.outcome for each in found.attempts]
        lost = sum(each in (Outcome.LOST, Outcome.INTERRUPTED) for each in outcomes)
        wanted = {"flaky": 2, "crash once": 2}.get(node.kind, 1) if found.attempts else 0
        if node.kind != "crash":
            assert starts[node.task.id] <= wanted + lost, (node, found.attempts)
    wait_until(partial(only_dead_letters_want_results, system, ends), "only dead letters want their parents' results")
