"""The handler. It reads the configuration of the app, so it needs the app's context."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from flask import current_app

from firmq import report_progress, task


@task("analyse-text", timeout=60, max_retries=2)
def analyse_text(text: str) -> dict[str, Any]:
    """Returns how many words a text has, which are the most frequent, and how long it takes to read."""
    paragraphs = text.split("\n\n")
    words: Counter[str] = Counter()
    for number, paragraph in enumerate(paragraphs, 1):
        words.update(re.findall(r"\w+", paragraph.lower()))
        report_progress(number / len(paragraphs), f"{number} of {len(paragraphs)} paragraphs")
    minutes = words.total() / current_app.config["WORDS_PER_MINUTE"]
    return {"words": words.total(), "minutes": round(minutes, 1), "frequent": words.most_common(5)}
