"""The handlers, which only the workers import."""

from __future__ import annotations

from collections.abc import Callable

from firmq import GiveUp, current_task, report_progress, task

Order = dict[str, object]


def _validate(order: Order) -> Order:
    if not isinstance(order.get("amount"), int):
        raise GiveUp(f"order {order.get('order')} has no amount: trying again would not help")
    return order


def _charge(order: Order) -> Order:
    # The task's id stays the same in every attempt: a payment service that is given it charges once.
    return {**order, "payment": f"paid-{current_task().id}"}


def _ship(order: Order) -> Order:
    return {**order, "shipped": True}


STATES: tuple[Callable[[Order], Order], ...] = (_validate, _charge, _ship)


@task("execute-order", timeout=600, max_retries=3)
def execute_order(order: int, amount: int | None = None) -> Order:
    """Runs one execution: each state gets what the one before it returned."""
    output: Order = {"order": order, "amount": amount}
    for number, state in enumerate(STATES, 1):
        output = state(output)
        report_progress(number / len(STATES), state.__name__.strip("_"))
    return output


@task("count-executions")
def count_executions() -> dict[str, int]:
    """Runs when every execution of the batch has ended."""
    batch = current_task().batch
    return {"completed": batch.completed, "failed": batch.failed} if batch else {}
