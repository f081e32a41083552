"""Pages that take and show orders."""

import json
from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from shared.money import total
from shop.models import Order
from worker.tasks import render_invoice, send_receipt

from firmq.django import submit_on_commit


def place_order(request: HttpRequest) -> JsonResponse:
    """Stores an order. Its tasks are submitted when the transaction commits, and find it in the database."""
    with transaction.atomic():
        order = Order.objects.create(prices=json.loads(request.body)["prices"])
        submit_on_commit(render_invoice, order=order.pk)
        transaction.on_commit(partial(send_receipt.enqueue, order.pk, language="de"))
    return JsonResponse({"order": order.pk}, status=201)


def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    """Shows an order."""
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"total": total(order.prices), "invoice": order.invoice, "receipt": order.receipt})
