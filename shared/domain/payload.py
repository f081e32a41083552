"""References to payloads: data and results that are stored outside Redis (a claim check).

A reference to data is among the keyword arguments of RQ's call (`task_data.py`), a reference to a result is base64
after a mark that base64 never has. Neither handlers nor clients can produce these: no value is taken for a reference.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firmq.shared.errors import CorruptRecord

_MARK = b"@"
_KEY = re.compile(r"([A-Za-z0-9_-]{1,128})\.([0-9a-f]{64})")
_NAME = re.compile(rf"[0-9a-f]{{2}}/{_KEY.pattern}(?:\.[0-9a-f]{{8}})?")


@dataclass(frozen=True, slots=True)
class PayloadReference:
    """A payload: the task that it belongs to, the SHA-256 of its content in hex, and its size in bytes."""

    task_id: str
    sha256: str
    size: int

    @classmethod
    def to(cls, task_id: str, content: bytes) -> PayloadReference:
        """Returns the reference to this content."""
        return cls(task_id, hashlib.sha256(content).hexdigest(), len(content))

    @classmethod
    def read(cls, fields: Any) -> PayloadReference:
        """Returns a reference from its stored form. Raises CorruptRecord."""
        try:
            found, size = _KEY.fullmatch(fields["payload"]), int(fields["bytes"])
        except (KeyError, TypeError, ValueError):
            found, size = None, 0
        if not found:
            raise CorruptRecord("the payload reference in the record is invalid")
        return cls(found[1], found[2], size)

    @property
    def fields(self) -> Mapping[str, str | int]:
        """Returns its stored form."""
        return {"payload": f"{self.task_id}.{self.sha256}", "bytes": self.size}

    @property
    def name(self) -> str:
        """Returns the name of its object in the payload store. The first two characters spread the objects evenly."""
        return f"{self.sha256[:2]}/{self.task_id}.{self.sha256}"

    def check(self, content: bytes) -> bytes:
        """Returns the content. Raises CorruptRecord when it differs from the stored one."""
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise CorruptRecord(f"the payload {self.name} was changed after it was stored: its SHA-256 differs")
        return content


def task_of(name: str) -> str | None:
    """Returns the id of the task that an object of the payload store belongs to; None for an object of another kind.

    An unfinished copy, whose name has eight more digits, belongs to the task too.
    """
    found = _NAME.fullmatch(name)
    return found[1] if found else None


def encode_result(result: bytes | PayloadReference) -> bytes:
    """Returns a result, JSON text, as it is stored for RQ."""
    if isinstance(result, PayloadReference):
        return _MARK + base64.b64encode(json.dumps(result.fields).encode())
    return base64.b64encode(result)


def decode_result(stored: bytes) -> bytes | PayloadReference:
    """Returns the JSON text of a stored result, or a reference to it. Raises ValueError or CorruptRecord."""
    if stored.startswith(_MARK):
        return PayloadReference.read(json.loads(base64.b64decode(stored[1:], validate=True)))
    return base64.b64decode(stored, validate=True)
