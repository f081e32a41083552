"""The body of a signal."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from firmq.shared.domain.values import Body


class SignalBody(Body):
    """The data of a signal."""

    data: Any = Field(None, description="Any JSON that fits the type in `wait_for`, which returns it.")
    replace: bool = Field(
        False,
        description="Replace a signal that has other data: until its handler has received it, while its task is a dead "
        "letter, or with the scope `admin`.",
    )
