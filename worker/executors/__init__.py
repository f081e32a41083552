"""Executors: the processes that run handlers, and how the worker starts, monitors and replaces them."""
