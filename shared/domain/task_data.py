"""How a task's data is stored in RQ's record.

RQ stores a call there: `["function", null, [arguments], {}]`, JSON by its JSON serializer. Ours always names the same
function, which refuses: a stock RQ worker that pops one of our queue entries must not execute the data of a caller. The
name belongs to the format of the data. The arguments are the task's type and its data; the data is kept as the original
text, so that workers pass it on without parsing it. Where the data is a payload, a keyword argument refers to it.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache

from firmq.shared.domain.payload import PayloadReference
from firmq.shared.errors import CorruptRecord

_FUNCTION = "firmq.rq.refuse"
_BEFORE = "shared.domain.task_data.refuse"
"""The name in records of format 4."""
_HEAD = f'["{_FUNCTION}",null,["'
_TAIL = "],{}]"
_END = _TAIL.encode()

_MOST_INFLATED = 64 << 20


def encode(task_type: str, data: str | PayloadReference) -> str:
    """Returns the data of a task, JSON text or a reference to it, as RQ's call."""
    if isinstance(data, PayloadReference):
        return f'{_HEAD}{task_type}",null],{json.dumps(data.fields)}]'
    return f'{_HEAD}{task_type}",{data}{_TAIL}'


@lru_cache(maxsize=1000)
def _head(task_type: str) -> bytes:
    return f'{_HEAD}{task_type}",'.encode()


def decode(task_type: str, stored: bytes) -> bytes | PayloadReference:
    """Returns the JSON text of stored data, or a reference to it.

    Raises CorruptRecord when the record holds another call, or none.
    """
    head = _head(task_type)
    if stored.startswith(head) and stored.endswith(_END):
        return stored[len(head) : -len(_END)]
    try:
        function, _, (_, data), reference = json.loads(_inflated(stored))
        if function not in (_FUNCTION, _BEFORE):
            raise CorruptRecord(f"the record calls {function!r}, which is not a function of Firmq")
        return PayloadReference.read(reference) if reference else json.dumps(data).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptRecord("the record's data is not a task's call") from error


def may_refer(stored: bytes) -> bool:
    """Returns whether stored data may be a reference to a payload; false for all data as we store it otherwise."""
    return not stored.endswith(_END)


def _inflated(stored: bytes) -> bytes:
    """Returns stored data decompressed: RQ's own tools compress the data of a job that they save again."""
    try:
        return zlib.decompressobj().decompress(stored, _MOST_INFLATED)
    except zlib.error:
        return stored
