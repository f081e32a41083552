"""Sanitizing of foreign text before it is shown on a page or a terminal."""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def plain(value: object) -> str:
    """Returns the text with invisible characters, cursor controls and direction marks escaped.

    Uses the escapes of JSON, so JSON text keeps its value.
    """
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(value))
