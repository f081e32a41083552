"""The steps of a task in local mode, in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.step import SIGNAL, StepKind, encode_step, read_step
from firmq.shared.domain.task import new_task_id
from firmq.shared.stores.steps import StoredSteps
from firmq.worker.handlers.parent_results import ParentTask


class LocalSteps:
    """Keeps steps between the attempts of one task; `now` is when its attempt would run, `signals` are all there.

    Children are run when they are started.
    """

    def __init__(self, signals: Mapping[str, Any], run_child: Callable[[str, Mapping[str, Any]], ParentTask]) -> None:
        self.now = datetime.now(UTC)
        self.records: dict[str, bytes] = {}
        self.signals = signals
        self.run_child = run_child
        self.output: list[Any] = []
        self.data: bytes | None = None
        self.children: dict[str, ParentTask] = {}

    def load(self) -> StoredSteps:
        return StoredSteps(instant_us(self.now), dict(self.records))

    def save(self, name: str, record: bytes, before: bytes = b"") -> bytes:
        if before and self.records.get(name) == before:
            step = read_step(name, record)
            if step.kind is StepKind.WAIT and step.value:
                raise ValueError(f"the data of signal {name.removeprefix(SIGNAL)!r} is not accepted: {step.value}")
            self.records[name] = record
            return record
        signal = name.removeprefix(SIGNAL)
        if signal != name and signal in self.signals:
            now_us, value = instant_us(self.now), json.dumps(self.signals[signal]).encode()
            record = encode_step(StepKind.SIGNAL, value, attempt=0, started_us=now_us, ended_us=now_us, tries=0)
        elif signal != name:
            self.records.pop(name, None)  # the end of a wait
        return self.records.setdefault(name, record)

    def emit(self, attempt: int, number: int, chunk: bytes) -> bool:
        self.output.append(json.loads(chunk))
        return True

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> list[tuple[str, str]]:
        return [(new_task_id(), json.dumps(each)) for each in tasks]

    def start_children(self, name: str, record: bytes, group: str, children: Sequence[tuple[Any, ...]]) -> bytes:
        for task_id, body in children:
            self.children[str(task_id)] = self.run_child(str(task_id), json.loads(str(body)))
        return self.save(name, record)

    def restart(self, task_type: str, data: bytes, signals: Sequence[str]) -> None:
        self.records, self.children, self.data = {}, {}, data

    def checkpoint(self, name: str, record: bytes) -> bool:
        self.records[name] = record
        return False
