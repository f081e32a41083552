"""Data for a first command to try."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from firmq.shared.features.dev.sample_data import sample


class Size(Enum):
    SMALL = "small"


class Item(BaseModel):
    name: str
    size: Size
    prices: list[float]
    note: str = ""


class Order(BaseModel):
    items: Annotated[list[Item], Field(min_length=1)]
    first: Item


@pytest.mark.parametrize(
    "kind",
    [
        str, int, float, bool, None, date, datetime, UUID, Size, Item, Order, Any, list[int], dict[str, int],
        int | None, Literal["a"], Annotated[int, Field(ge=18)], Annotated[float, Field(gt=3)],
        Annotated[str, Field(examples=["x-1"], pattern="x-[0-9]")],
    ],
)  # fmt: skip
def test_a_sample_fits_its_schema(kind: Any) -> None:
    adapter = TypeAdapter(kind)
    adapter.validate_python(sample(adapter.json_schema()))


def test_a_sample_has_required_members_only() -> None:
    schema = TypeAdapter(Item).json_schema()
    assert sample(schema) == {"name": "some text", "size": "small", "prices": []}
