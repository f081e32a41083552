"""Bounds of the fields of a schedule that is declared in YAML or JSON, as in PUT /schedules/NAME."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)

from firmq.shared.domain.egress_policy import LONGEST, EgressPolicy
from firmq.shared.domain.task_fields import (
    MOST_TAGS_OF_A_SCHEDULE,
    TAG,
    Events,
    ExpiresIn,
    Jitter,
    Multiplier,
    Pauses,
    Retries,
    RetrySeconds,
    Score,
    Timeout,
)

_Tag = Annotated[str, StringConstraints(pattern=f"^{TAG.pattern}$")]


def _callable(url: str, info: ValidationInfo) -> str:
    outside: EgressPolicy = info.context["outside"] if info.context else EgressPolicy()
    outside.read(url)
    return url


class _Retry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    max_retries: Retries | None = None
    initial_delay: RetrySeconds | None = None
    multiplier: Multiplier | None = None
    max_delay: RetrySeconds | None = None
    jitter: Jitter | None = None
    pauses: Pauses | None = None


class _Webhook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(strict=True, max_length=LONGEST), AfterValidator(_callable)]
    events: Events | None = None
    retry: _Retry | None = None


class _Fields(BaseModel):
    """The fields that need bounds; `Schedule` checks the others."""

    cron: StrictStr | None = None
    interval: StrictInt | None = None
    timezone: StrictStr | None = None
    missed_limit: StrictInt | None = None
    limit_key: StrictStr | None = None
    fair_key: StrictStr | None = None
    score: Score | None = None
    timeout: Timeout | None = None
    expires_in: ExpiresIn | None = None
    retry: _Retry | None = None
    tags: Annotated[list[_Tag], Field(max_length=MOST_TAGS_OF_A_SCHEDULE)] | None = None
    webhook: _Webhook | None = None


def check_fields(entry: Mapping[str, Any], outside: EgressPolicy) -> None:
    """Raises ValueError that names each invalid field."""
    try:
        _Fields.model_validate({name: entry.get(name) for name in _Fields.model_fields}, context={"outside": outside})
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, each['loc']))}: {_lowered(each['msg'])}" for each in mistakes)
        ) from None


def _lowered(message: str) -> str:
    said = message.removeprefix("Value error, ")
    return said[:1].lower() + said[1:]
