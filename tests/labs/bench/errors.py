"""The one error of the benchmark: a measurement that could not be taken, and why."""


class BenchError(Exception):
    """Shown in the table in place of a number, so the text has to say what happened without a traceback."""
