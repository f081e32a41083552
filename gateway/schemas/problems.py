"""A refusal: a problem document (RFC 9457)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FieldError(BaseModel):
    """What is wrong with one field."""

    detail: str
    pointer: str | None = Field(None, description="JSON pointer into the body.")
    field: str | None = Field(None, description="The same for people: data.items[2]")
    parameter: str | None = Field(None, description="A parameter of the query.")


class Problem(BaseModel):
    """Why a request was not carried out (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Stable; GET of it explains it.")
    title: str
    status: int
    detail: str = Field(description="What to change.")
    instance: str
    request_id: str | None
    errors: list[FieldError] | None = Field(None, description="Every field that is wrong.")
