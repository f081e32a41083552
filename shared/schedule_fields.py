"""What the fields of a schedule may hold that somebody declares in YAML or JSON: the bounds of PUT /schedules/NAME."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, ValidationInfo

from shared.outside import LONGEST, Outside

_TEN_YEARS = 10 * 365 * 86400
_Seconds = Annotated[float, Field(strict=True, ge=0, le=_TEN_YEARS)]


def _callable(url: str, info: ValidationInfo) -> str:
    outside: Outside = info.context["outside"] if info.context else Outside()
    outside.read(url)
    return url


class _Retry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    max_retries: Annotated[int, Field(strict=True, ge=0, le=1000)] | None = None
    initial_delay: _Seconds | None = None
    multiplier: Annotated[float, Field(strict=True, ge=1, le=100)] | None = None
    max_delay: _Seconds | None = None
    jitter: Annotated[float, Field(strict=True, ge=0, le=1)] | None = None


class _Webhook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(strict=True, max_length=LONGEST), AfterValidator(_callable)]
    events: Annotated[list[Literal["completed", "failed", "cancelled", "expired"]], Field(max_length=4)] | None = None
    retry: _Retry | None = None


class _Fields(BaseModel):
    """Of the others `Schedule` knows what they may be."""

    timeout: Annotated[float, Field(strict=True, gt=0, le=7 * 86400)] | None = None
    expires_in: Annotated[float, Field(strict=True, gt=0, le=_TEN_YEARS)] | None = None
    retry: _Retry | None = None
    tags: (
        Annotated[list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:@/-]{1,64}$")]], Field(max_length=15)]
        | None
    ) = None
    webhook: _Webhook | None = None


def check_fields(entry: Mapping[str, Any], outside: Outside) -> None:
    """Raises ValueError with the name of each field that holds what it must not."""
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
