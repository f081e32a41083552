"""Alerts: what is wrong, and what to do about it. The dashboard shows them, the housekeeper sends them."""
