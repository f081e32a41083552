"""Models of the doctor's answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from firmq.gateway.schemas.values import View


class HealthCheck(View):
    """One check of the system."""

    check: str
    level: Literal["ok", "warning", "error"]
    seen: str
    advice: str = Field(description="The remedy, unless the level is ok.")


class HealthDetail(View):
    """The result of all checks of the system."""

    status: Literal["ok", "warning", "error"] = Field(description="The worst level of the checks.")
    version: str
    checks: list[HealthCheck]
