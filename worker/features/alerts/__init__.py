"""Alerts: problems are sent to a chat and by email, once when they begin and once when they are over."""
