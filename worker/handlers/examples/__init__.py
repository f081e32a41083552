"""Two example types that do real work: `process` reads a text, `calculate` does exact arithmetic."""

from firmq.worker.handlers.examples import calculate, process

__all__ = ["calculate", "process"]
