"""The handler: an expense that is paid once a person has approved it, and is asked for again if nobody answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from firmq import SignalTimeout, step, task, wait_for

MAILBOX = Path(os.environ.get("EXPENSE_MAILBOX", "expenses.mailbox"))
"""Stands for a mail server: a line for each mail, and for each payment."""
MANAGERS = ("ann@example.com", "bob@example.com", "board@example.com")
"""Who is asked, one after the other."""


def send(line: str) -> None:
    """Sends a mail."""
    with MAILBOX.open("a") as file:
        file.write(f"{line}\n")


@task("expense", max_retries=10)
def handle_expense(expense: int, amount: int, patience: float = 86_400.0) -> dict[str, Any]:
    """Asks managers until one decides, each for `patience` seconds. Returns the decision."""
    for number, manager in enumerate(MANAGERS, 1):
        step(f"ask-{number}", send, f"to {manager}: please approve expense {expense} of {amount}")
        try:
            decision = wait_for(f"decision-{number}", timeout=patience)
        except SignalTimeout:
            continue
        if decision["approved"]:
            step("pay", send, f"paid {expense} {amount}")
        return {"expense": expense, "approved": decision["approved"], "by": manager}
    step("tell", send, f"to everyone: nobody decided about expense {expense}")
    return {"expense": expense, "approved": False, "by": None}
