"""The state in which the stories begin: tasks of five types, dead letters of twelve causes, two releases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firmq.shared.domain import failure_fingerprint
from firmq.shared.domain.task import new_task_id
from tests.support.attempt_ends import ENDS, claiming, ended, report
from tests.support.harness import System

OLD, NEW = "1.8.2", "1.9.0"
AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of dead letters: `share` of them in thousandths, `customers` that they are of."""

    type: str
    error: str
    message: str
    place: str
    share: int
    customers: int = 40
    version: str = OLD


CHARGE, BROKEN = "card-charge", "invoice-pdf"
CAUSES = (
    Cause(CHARGE, "BankTimeout", "bank-north did not answer within 30 s", "shop.bank.charge", 370, customers=7),
    Cause(BROKEN, "KeyError", "'vat_id'", "shop.invoices.render", 260, version=NEW),
    Cause(CHARGE, "CardDeclined", "card of order 4711 was declined", "shop.bank.charge", 90),
    Cause(CHARGE, "InvalidAmount", "amount 0 of order 12 is not allowed", "shop.bank.check", 40),
    Cause("order-mail", "MailboxFull", "mailbox of customer 81 is full", "shop.mail.send", 60),
    Cause("order-mail", "SMTPRefused", "550 no such user", "shop.mail.send", 50),
    Cause("order-mail", "TemplateMissing", "template order_fr.html is missing", "shop.mail.render", 30),
    Cause("stock-sync", "ConnectionRefused", "warehouse-2:8443 refused the connection", "shop.stock.fetch", 40),
    Cause("stock-sync", "BadGateway", "502 from warehouse-3", "shop.stock.fetch", 20),
    Cause("nightly-report", "DiskFull", "no space left on /reports", "shop.reports.write", 15),
    Cause("nightly-report", "DivisionByZero", "division by zero", "shop.reports.share", 15),
    Cause(BROKEN, "FontMissing", "font DejaVu Sans is missing", "shop.invoices.fonts", 10),
)
COMPLETED = (CHARGE, "order-mail", BROKEN, "stock-sync", "nightly-report")


def data_of(task_type: str, order: int, customers: int = 400) -> str:
    """Returns the data of a task, as its handler takes it."""
    if task_type == "stock-sync":
        return json.dumps({"warehouse": f"warehouse-{order % 9}"})
    if task_type == "nightly-report":
        return json.dumps({"day": order})
    about = {"order": 10_000 + order, "customer": f"customer-{order * 31 % customers}"}
    return json.dumps(about | ({"amount": 5 + order % 90} if task_type == CHARGE else {}))


def fill(system: System, tasks: int, dead_letters: int) -> None:
    """Makes so many ended tasks, and dead letters among them, with the scripts that workers use."""
    for at, cause in enumerate(CAUSES):
        count = dead_letters * cause.share // 1000
        if at == len(CAUSES) - 1:
            count = dead_letters - sum(dead_letters * each.share // 1000 for each in CAUSES[:-1])
        about = {"type": cause.error, "message": cause.message, "place": cause.place}
        about["pattern"] = failure_fingerprint.pattern(cause.message)
        trace = f"Traceback (most recent call last):\n  in {cause.place}\n{cause.error}: {cause.message}"
        rows = [(cause.type, data_of(cause.type, order, cause.customers)) for order in range(max(1, count))]
        _end(system, rows, "failed", {"error": {**about, "traceback": trace}, "app_version": cause.version}, about)
    kinds = itertools.cycle(COMPLETED)
    rows = [(kind, data_of(kind, order)) for order, kind in zip(range(tasks - dead_letters), kinds, strict=False)]
    _end(system, rows, "completed", {"app_version": OLD}, None)


def _end(
    system: System, rows: Sequence[tuple[str, str]], outcome: str, record: dict[str, object], error: object
) -> None:
    for part in _parts(rows):
        system.submit_many(part)
        token = new_task_id()
        found = system.scripts.call(
            "claim", *claiming("shop", token, 600_000_000, AT_ONCE, 1 << 24, "normal", AT_ONCE)
        )[3]
        said = json.dumps({"worker": "shop-1", "outcome": ENDS[outcome][0], **record})
        fields = {"error": json.dumps(error)} if error else {"result": "null"}
        report(system.scripts, *(ended(task[0], token, outcome, said, **fields) for task in found), worker="shop")


def _parts(rows: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    for first in range(0, len(rows), AT_ONCE):
        yield rows[first : first + AT_ONCE]
