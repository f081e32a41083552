"""The handler: an order from its payment to a message some time after its delivery."""

from __future__ import annotations

from pydantic import BaseModel

from examples.order_saga import shop
from firmq import SignalTimeout, StepFailed, sleep, stable_id, step, task, wait_for

APPROVAL_ABOVE = 1000
APPROVAL_DAYS = 7


class Approval(BaseModel):
    """What the person decides who is asked for an approval."""

    approved: bool


@task("saga-order", max_retries=10)
def handle_order(order: int, article: str, amount: int, thank_after: float = 2.0) -> dict[str, str]:
    """Handles an order; what it has done is undone when a later step cannot be done."""
    if amount > APPROVAL_ABOVE and not _is_approved():
        return {"order": "declined"}
    payment = step("charge", shop.charge, order, amount, stable_id("payment-key"), retries=3)
    try:
        shipment = step("ship", shop.ship, order, article, retries=3, give_up_on=(shop.OutOfStock,))
    except StepFailed as failure:
        step("refund", shop.refund, order, payment)
        return {"order": "refunded", "because": failure.message}
    sleep(thank_after, "until-it-has-arrived")
    step("thank", shop.thank, order)
    return {"order": "completed", "payment": payment, "shipment": shipment}


def _is_approved() -> bool:
    try:
        answer = wait_for("approval", Approval, timeout=APPROVAL_DAYS * 86_400)
    except SignalTimeout:
        return False
    return answer.approved
