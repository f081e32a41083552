"""One module a system; its name is the system's name on the command line. `tests/bench/adapter.py` says what it holds.

Excluded from type checking, each by its first line: what they import is installed in environments of their own.
"""
