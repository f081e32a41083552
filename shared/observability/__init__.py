"""Logs, spans and metrics: how the parts say what they do."""
