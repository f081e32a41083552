"""Executors: the processes that run handlers, and how the worker starts, watches and replaces them."""
