"""Explanations: status of a task, alerts, timeline, graph of dependencies."""
