"""Webhooks: calls to the receivers of tasks' ends."""
