"""Steps of a task: calls that a handler has finished, and does not repeat when its task runs again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import whole

STEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
SIGNAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,89}")
SIGNAL = "signal:"
"""The names of steps that are waits for signals begin with this."""


class StepKind(StrEnum):
    """The kind of a stored step: a result, the error with which it ended, or a sleep, which may be over (`slept`).

    A wait for a signal becomes the signal, or a timeout. A checkpoint is the place of a loop.
    """

    RESULT = "result"
    ERROR = "error"
    SLEEP = "sleep"
    SLEPT = "slept"
    WAIT = "wait"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stored step. `value` is its result, or the `type` and `message` of its error; `size` is in bytes.

    A sleep and a wait end when the task continues at the latest. The value of a wait is why its last signal was not
    accepted; `schema` is of a signal with a type. `by` sent a signal.

    `attempt` is the one that ran it or has received a signal, and `tries` how often that called its function.
    """

    name: str
    kind: StepKind
    value: Any
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    tries: int = 1
    size: int = 0
    by: str = ""
    schema: Any = None


_PLACE = re.compile(rb',"place":(\d+),"value":')


def encode_step(
    kind: StepKind,
    value: bytes,
    *,
    attempt: int,
    started_us: int,
    ended_us: int = 0,
    tries: int = 1,
    place: int | None = None,
) -> bytes:
    """Returns the record of a step; `value` is JSON. The scripts read the kind, so it is the first member.

    A step has a `place`, the number of those before it, if those after it can begin only after it has ended.
    """
    head = f'{{"kind":"{kind}","attempt":{attempt},"started_at":{started_us},"ended_at":{ended_us},"tries":{tries}'
    at = b"" if place is None else b',"place":%d' % place
    return head.encode() + at + b',"value":' + value + b"}"


def schema_member(schema: object) -> bytes:
    """Returns the member of a record that holds a schema, as text in which the scripts find no other member."""
    return b',"schema":' + json.dumps(json.dumps(schema)).encode() if schema is not None else b""


def with_schema(record: bytes, schema: object) -> bytes:
    """Returns the record of a wait for a signal with this schema, if any."""
    return record.replace(b',"tries":', schema_member(schema) + b',"tries":', 1)


def place_of(record: bytes) -> int | None:
    """Returns the place that the record of a step has; None for one that is not in order."""
    found = _PLACE.search(record, 0, record.find(b',"value":') + 9)
    return int(found[1]) if found else None


def read_step(name: str, record: bytes) -> Step:
    """Returns a step from its record. Raises ValueError, KeyError or TypeError for a corrupt one."""
    fields = json.loads(record)
    return Step(
        name=name,
        kind=StepKind(fields["kind"]),
        value=fields["value"],
        attempt=whole(fields["attempt"]),
        started_at=_moment(fields["started_at"]),
        ended_at=_moment(fields["ended_at"]),
        tries=whole(fields["tries"]),
        by=str(fields.get("by", "")),
        schema=json.loads(fields.get("schema", "null")),
        size=len(record) - record.index(b'"value":') - 9,
    )


def _moment(us: int) -> datetime | None:
    return instant(us) if us else None
