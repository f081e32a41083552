"""The systems that an order calls: here they only write what they did into a file, so that you can see it."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

JOURNAL = Path(os.environ.get("SHOP_JOURNAL", "shop.journal"))


class OutOfStock(Exception):
    """The warehouse has none left; asking again does not help."""


def _note(line: str) -> None:
    with JOURNAL.open("a") as file:
        file.write(f"{line}\n")


def charge(order: int, amount: int, key: str) -> str:
    """Charges the customer. A payment service that gets the same key twice charges once."""
    time.sleep(random.uniform(0.0, 0.1))
    _note(f"charge {order} {amount} {key}")
    return f"payment-{key}"


def refund(order: int, payment: str) -> None:
    _note(f"refund {order} {payment}")


def ship(order: int, article: str) -> str:
    """Orders the shipment; there are no unicorns."""
    if article == "unicorn":
        raise OutOfStock(f"order {order}: no {article} left")
    _note(f"ship {order} {article}")
    return f"shipment-{order}"


def thank(order: int) -> None:
    _note(f"thank {order}")
