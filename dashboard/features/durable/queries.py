"""What the page of a task shows of its steps, output and signals."""

from __future__ import annotations

import json
from collections.abc import Iterator

from flask import request

from firmq.dashboard.auth.security import person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import PageContext
from firmq.dashboard.forms import Field, Mistakes, blamed, fields_of, filled
from firmq.dashboard.pages.task import LONGEST
from firmq.shared.domain.step import SIGNAL, Step, StepKind
from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.features.durable.output import Outputs
from firmq.shared.features.durable.signals import Signals

MOST_STEPS = 50
"""Steps that the page shows, the last ones."""
MOST_CHUNKS = 500
"""Chunks of output that the page shows, the last ones."""


class DurableQueries:
    """Steps, output and signals of tasks, with the store of signals."""

    def __init__(self, context: PageContext) -> None:
        self.signals = Signals.of(context.stores.queues.scripts, context.settings)
        self.outputs = Outputs(context.stores.queues.scripts.redis)
        self.redaction = context.redaction

    def steps(self, found: TaskDetail) -> list[tuple[Step, str]]:
        """Returns the last steps of a task, each with its result or its error."""
        return [(each, self._value(each)) for each in found.steps[-MOST_STEPS:]]

    def _value(self, step: Step) -> str:
        return json.dumps(self.redaction.hide(step.value), ensure_ascii=False)

    def output(self, task_id: str) -> str:
        """Returns the last chunks that a task has emitted: text as it is, all else as JSON in lines of their own."""
        return "".join(self._chunk(each.chunk) for each in self.outputs.latest(task_id, MOST_CHUNKS))[-LONGEST:]

    def _chunk(self, chunk: bytes | None) -> str:
        if chunk is None:
            return "..."
        try:
            value = self.redaction.hide(json.loads(chunk))
        except ValueError:
            return "(unreadable)\n"
        return value if isinstance(value, str) else f"{json.dumps(value, ensure_ascii=False)}\n"

    def open_signals(
        self, found: TaskDetail, posted: str = "", mistakes: Mistakes = ()
    ) -> Iterator[tuple[Step, list[Field], list[str]]]:
        """Yields the signals that may be sent, or be replaced by this user, with the fields of their forms."""
        state = found.summary.state
        for each in found.steps:
            is_open = each.kind is StepKind.WAIT and not state.ended
            if each.kind is StepKind.SIGNAL:
                may_replace = not each.attempt or person().may(Role.ADMIN)
                is_open = state is TaskState.FAILED or (not state.ended and may_replace)
            if is_open and not found.summary.archived:
                fields, others = fields_of(each.schema or {}, self.redaction), list[str]()
                if posted == each.name.removeprefix(SIGNAL):
                    fields, others = blamed(filled(fields, request.form, self.redaction), mistakes)
                yield each, fields, others
