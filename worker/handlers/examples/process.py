"""`process`: statistics of any text or JSON.

It fails on purpose on data without a word, which makes it the type to try retries with:
`{"type": "process", "data": ""}` fails four times and becomes a dead letter.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from firmq.worker.handlers.context import report_progress
from firmq.worker.handlers.registry import task

_WORD = re.compile(r"\w+", re.UNICODE)
_CHUNK = 1 << 16


class NothingToProcess(Exception):
    """The data holds no word: send a text, or JSON with at least one text or number in it."""


@task("process", timeout=60)
def process(data: Any) -> dict[str, Any]:
    """Counts characters, lines and words of a text, or of all texts inside a JSON value, and names the commonest."""
    texts = [data] if isinstance(data, str) else list(_texts(data))
    words: Counter[str] = Counter()
    size = sum(map(len, texts)) or 1
    done = 0
    for text in texts:
        for at in range(0, len(text), _CHUNK):
            words.update(word.lower() for word in _WORD.findall(text[at : at + _CHUNK]))
            done += len(text[at : at + _CHUNK])
            if size > _CHUNK:
                report_progress(done / size, f"{len(words)} different words so far")
    if not words:
        raise NothingToProcess(f"{NothingToProcess.__doc__} Got {json.dumps(data)[:100]}")
    return {
        "characters": sum(map(len, texts)),
        "lines": sum(text.count("\n") + 1 for text in texts),
        "words": words.total(),
        "different_words": len(words),
        "commonest": words.most_common(5),
    }


def _texts(value: Any) -> Iterator[str]:
    """Yields every text in a JSON value, names of members included; numbers as their text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield json.dumps(value)
