"""Carriers for the demonstration, so that the example needs no network; a shop has theirs in CARRIER_URL."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter

PRICES = {"express": 9.5, "parcel": 4.2, "bicycle": 3.0}
carriers = APIRouter(prefix="/demo-carriers")


@carriers.get("/{name}")
async def price(name: Literal["express", "parcel", "bicycle"], weight: float) -> dict[str, float]:
    """Answers after a while, the cheapest last."""
    await asyncio.sleep(2 / PRICES[name])
    return {"price": round(PRICES[name] + 0.5 * weight, 2)}
