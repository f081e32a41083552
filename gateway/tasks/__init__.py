"""Turns request bodies into stored tasks."""
