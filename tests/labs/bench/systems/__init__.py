"""One module a system, by its name on the command line. `tests/labs/bench/adapter.py` says what it holds.

Excluded from type checking, each by its first line: what they import is installed in environments of their own.
"""
