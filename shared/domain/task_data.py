"""The format of a task's payload inside RQ's record.

RQ stores a call: `["function", null, [arguments], {}]`, JSON by its JSON serializer. Ours always names the same
function, which refuses to run: a stock RQ worker that pops one of our queue entries cannot execute the data of a
caller. The arguments are the task's type and its data; the data is kept as the original text, so that workers pass it
on without parsing it.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache

from shared.errors import CorruptRecord

_FUNCTION = "shared.domain.payload.refuse"
_HEAD = f'["{_FUNCTION}",null,["'
_TAIL = "],{}]"
_END = _TAIL.encode()

_MOST_INFLATED = 64 << 20


def refuse(task_type: str, data: object) -> None:
    """The function that a stock RQ worker finds in a task of ours. Raises always."""
    raise RuntimeError(
        f"a task of type {task_type!r} can only be run by `python -m worker`: stop the stock RQ worker on this Redis"
    )


def encode(task_type: str, data: str) -> str:
    """Returns RQ's call for a task; `data` is JSON text."""
    return f'{_HEAD}{task_type}",{data}{_TAIL}'


@lru_cache(maxsize=1000)
def _head(task_type: str) -> bytes:
    return f'{_HEAD}{task_type}",'.encode()


def decode(task_type: str, call: bytes) -> bytes:
    """Returns the JSON text of the data inside RQ's call.

    Raises CorruptRecord when the record holds another call, or none.
    """
    head = _head(task_type)
    if call.startswith(head) and call.endswith(_END):
        return call[len(head) : -len(_END)]
    try:
        function, _, (_, data), _ = json.loads(_inflated(call))
        if function != _FUNCTION:
            raise CorruptRecord(f"the record calls {function!r}, which is not a function of Task Queue")
        return json.dumps(data).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptRecord("the record's data is not a task's call") from error


def _inflated(call: bytes) -> bytes:
    """Returns the call decompressed: RQ's own tools compress the data of a job that they save again."""
    try:
        return zlib.decompressobj().decompress(call, _MOST_INFLATED)
    except zlib.error:
        return call
