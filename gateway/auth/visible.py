"""Hides the fields of DASHBOARD_REDACT from callers with a personal key, as the dashboard does from its users."""

from __future__ import annotations

import json
from typing import Any

from flask import g, has_request_context

from firmq.gateway.http import errors
from firmq.shared.domain.redaction import HIDDEN, Redaction
from firmq.shared.submission.refusals import Refusal


def visible(value: Any) -> Any:
    """Returns data or a result as the caller may see it."""
    redaction: Redaction | None = g.get("redaction")
    return value if redaction is None else redaction.hide(value)


def is_visible(path: str) -> bool:
    """Returns whether the caller may see the field with this path."""
    redaction: Redaction | None = g.get("redaction") if has_request_context() else None
    return redaction is None or not redaction.hides_path(path)


def demand_visible(path: str) -> None:
    """Raises Refusal (403) for a field that the caller may not see: counts and filters would leak its values."""
    if not is_visible(path):
        raise Refusal(errors.SCOPE, f"DASHBOARD_REDACT hides {path} from personal API keys")


def demand_no_placeholder(data: Any) -> None:
    """Raises Refusal (403) for data that the caller has read with hidden values: placeholders would replace those."""
    if g.get("redaction") is not None and HIDDEN in json.dumps(data, ensure_ascii=False):
        raise Refusal(errors.SCOPE, "the data has placeholders of values that DASHBOARD_REDACT hides: change it there")
