"""The tasks: workers find them because this app is in INSTALLED_APPS."""

from shared.money import total
from shop.models import Order

from firmq import task

try:
    from django.tasks import task as django_task
except ImportError:  # before Django 6
    from django_tasks import task as django_task  # type: ignore[no-redef]


@task("render-invoice", max_retries=5)
def render_invoice(order: int) -> str:
    """Renders the invoice of an order: a handler of Firmq."""
    found = Order.objects.get(pk=order)
    found.invoice = f"Invoice {order}: {total(found.prices)}"
    found.save(update_fields=["invoice"])
    return found.invoice


@django_task(priority=10)
async def send_receipt(order: int, language: str = "en") -> str:
    """Sends the receipt of an order: a task of Django."""
    receipt = f"receipt of order {order} ({language})"
    await Order.objects.filter(pk=order).aupdate(receipt=receipt)
    return receipt
