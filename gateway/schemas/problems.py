"""Models of problem documents (RFC 9457)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FieldError(BaseModel):
    """A mistake in one field."""

    detail: str
    pointer: str | None = Field(None, description="JSON pointer into the body.")
    field: str | None = Field(None, description="The same place in readable form, such as data.items[2].")
    parameter: str | None = Field(None, description="Query parameter.")


class Problem(BaseModel):
    """A refused request (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Stable identifier; GET of this path explains it.")
    title: str
    status: int
    detail: str = Field(description="The mistake and the required change.")
    instance: str
    request_id: str | None
    unchanged: bool | None = Field(
        None,
        description="True when Redis did not answer and nothing was changed: the request may be resent, also with "
        "another Idempotency-Key.",
    )
    errors: list[FieldError] | None = Field(None, description="Every invalid field.")
