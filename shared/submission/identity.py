"""The identity of a repeatable submission, the same over HTTP and directly."""

from __future__ import annotations

import json
import re
from typing import Any

from firmq.shared.stores.idempotency import Request
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

_KEY = re.compile(r'"([\x20\x21\x23-\x7e]{1,255})"|([\x21\x23-\x7e]{1,255})')


def identity(client: str, key: str, path: str, value: Any) -> Request:
    """Returns the identity of a request: client, key, path, and content regardless of member order.

    The key is a string in quotation marks, as in the IETF draft, or the same without them. Raises Refusal when it is
    malformed.
    """
    match = _KEY.fullmatch(key.strip())
    if not match:
        raise Refusal(
            refusals.BAD_REQUEST,
            "the header Idempotency-Key must be 1 to 255 printable ASCII characters, with or without quotation marks",
        )
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Request.of(client, match[1] or match[2], path, content)
