"""Handlers: the functions that run task types, and the API that they can use."""
