"""Alerts: problems with their remedies. The dashboard shows them, the housekeeper sends them."""
