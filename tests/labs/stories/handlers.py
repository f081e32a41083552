"""The five types of the shop of the stories, as they are once everything is mended."""

from __future__ import annotations

import time

from firmq import task


@task("card-charge", preview="order {order}, {amount} EUR from {customer}")
def card_charge(order: int, customer: str, amount: int) -> int:
    return order


@task("order-mail", preview="order {order} to {customer}")
def order_mail(order: int, customer: str) -> int:
    return order


@task("invoice-pdf", preview="invoice {order} of {customer}")
def invoice_pdf(order: int, customer: str) -> int:
    return order


@task("stock-sync")
def stock_sync(warehouse: str) -> str:
    return warehouse


@task("nightly-report")
def nightly_report(day: int, seconds: float = 0) -> int:
    time.sleep(seconds)
    return day
