"""Handlers: the functions behind task types, and what they can use while they run."""
