"""Webhooks: signed calls that report the ends of tasks."""
