"""Base classes of queries and responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Query(BaseModel):
    """Base class of query parameters: converts texts to the types of the fields."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PageQuery(Query):
    """Page of a list."""

    limit: int = Field(
        50, ge=1, le=200, description="Maximum items on the page; a page may have fewer and not be the last."
    )
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the previous page.")


class View(BaseModel):
    """Base class of responses. Every field is always present; it is null when it has no value."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class SparseView(BaseModel):
    """Base class of responses that repeat by the thousand: fields without a value are omitted."""

    model_config = ConfigDict(extra="forbid")


NextCursor = Annotated[str | None, Field(description="Cursor of the next page; null on the last page.")]
