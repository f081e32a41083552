"""The handler: it waits for several carriers at a time."""

from __future__ import annotations

import asyncio
import os

import httpx
from pydantic import BaseModel, Field

from firmq import progress, task

CARRIERS = ("express", "parcel", "bicycle")
CARRIER_URL = os.environ.get("CARRIER_URL", "http://localhost:9000/demo-carriers")


class Parcel(BaseModel):
    """What is to be sent."""

    weight: float = Field(gt=0, le=30, description="in kilograms")
    country: str = Field(pattern="^[A-Z]{2}$")


@task("ask-carriers", timeout=30, max_retries=3)
async def ask_carriers(parcel: Parcel) -> dict[str, float]:
    """Returns the price of each carrier. If one does not answer, all are asked again after a pause."""
    prices: dict[str, float] = {}
    async with httpx.AsyncClient(timeout=10) as http:
        for answer in asyncio.as_completed([_ask(http, carrier, parcel) for carrier in CARRIERS]):
            carrier, price = await answer
            prices[carrier] = price
            await progress(len(prices) / len(CARRIERS), f"{carrier} has answered")
    return prices


async def _ask(http: httpx.AsyncClient, carrier: str, parcel: Parcel) -> tuple[str, float]:
    answer = await http.get(f"{CARRIER_URL}/{carrier}", params=parcel.model_dump())
    answer.raise_for_status()
    return carrier, float(answer.json()["price"])
