"""Writes rows as a Django project does; prints the ids of tasks that must exist."""

from __future__ import annotations

import django

django.setup()

from django.db import transaction  # noqa: E402

from firmq import new_task  # noqa: E402
from firmq.django import outbox  # noqa: E402
from tests.features.outbox.django_tasks import receipt  # noqa: E402
from tests.features.outbox.handlers import invoice  # noqa: E402


class RollBack(Exception):
    pass


with transaction.atomic():
    print(outbox.add(invoice, order=1))
    try:
        with transaction.atomic():
            outbox.add(invoice, order=2)
            raise RollBack
    except RollBack:
        pass
    print(outbox.add(invoice.options(tags=["a"]), 3))
    print(outbox.add(receipt, 5))
try:
    with transaction.atomic():
        outbox.add(invoice, order=4)
        raise RollBack
except RollBack:
    pass
print(outbox.add(new_task("process", "in autocommit mode")))
outbox.add(new_task("strict", 1))
