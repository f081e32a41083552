"""Leaves out the tasks whose last step Redis may have answered and then taken back.

A change of master, and kill -9 of a Redis whose disk is slow, take back the last steps. What a client was told waits
until it is safe from that; claims and reports do not, and are done again.
"""

from __future__ import annotations

from dataclasses import replace

from tests.labs.faults.case import AFTER_THAW, SECOND, Case
from tests.labs.faults.ledger import Execution
from tests.labs.faults.site import LEASE

HELD = int(LEASE * SECOND)
"""Nanoseconds for which a worker may begin what it claimed before that was taken back."""


def untouched(case: Case) -> Case:
    """The case without the tasks that were run, cancelled or sent back while a step could be taken back."""
    spans = [(each.begin_ns - AFTER_THAW, each.end_ns + HELD) for each in case.run.happened if each.rolls_back]

    def during(begin: int, end: int) -> bool:
        return any(begin <= over and end >= began for began, over in spans)

    ran = {task_id for task_id, runs in case.executions.items() if any(during(*_span(each)) for each in runs)}
    told = {each.task_id for each in case.run.ledger.deeds if during(each.sent_ns, each.told_ns)}
    rest = replace(case, tasks={task_id: each for task_id, each in case.tasks.items() if task_id not in ran | told})
    rest.executions = {task_id: runs for task_id, runs in case.executions.items() if task_id not in ran | told}
    rest.by_process, rest.kinds = case.by_process, case.kinds
    return rest


def _span(execution: Execution) -> tuple[int, int]:
    return execution.start_ns, execution.last_ns
