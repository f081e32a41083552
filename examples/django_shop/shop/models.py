"""The model of the shop."""

from django.db import models


class Order(models.Model):
    """An order; background work fills in the invoice and the receipt."""

    prices = models.JSONField()
    invoice = models.CharField(max_length=200, blank=True)
    receipt = models.CharField(max_length=200, blank=True)
