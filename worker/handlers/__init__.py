"""Handlers: the functions behind task types, and what they may use while they run."""
