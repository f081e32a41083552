"""The helpers for FastAPI."""
