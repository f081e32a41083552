"""`manage.py test`: the shop without Redis, its tasks run when they are submitted."""

from django.test import TransactionTestCase

from firmq import LocalClient, use_client


class OrderTest(TransactionTestCase):
    """An order gets its invoice and its receipt."""

    def setUp(self) -> None:
        """Runs tasks in this process."""
        before = use_client(LocalClient(["firmq.django.handlers"]))
        self.addCleanup(use_client, *before)

    def test_an_order_gets_its_invoice_and_its_receipt(self) -> None:
        """Places an order and looks at it."""
        placed = self.client.post("/orders", {"prices": [1250, 499]}, content_type="application/json")
        shown = self.client.get(f"/orders/{placed.json()['order']}").json()
        assert shown == {
            "total": "17.49 EUR",
            "invoice": f"Invoice {placed.json()['order']}: 17.49 EUR",
            "receipt": f"receipt of order {placed.json()['order']} (de)",
        }
