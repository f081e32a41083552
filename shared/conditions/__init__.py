"""Conditions: problems with their remedies, shown by dashboard, doctor and health checks, and sent by a feature."""
