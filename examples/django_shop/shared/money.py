"""Sums of money."""


def total(cents: list[int]) -> str:
    """Returns a sum in words."""
    return f"{sum(cents) / 100:.2f} EUR"
