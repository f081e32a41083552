"""Exceptions by which a handler controls its task, and by which it is stopped."""

from __future__ import annotations

from datetime import timedelta


class RetryLater(Exception):
    """Requests a retry after `delay` (seconds or a timedelta) instead of the policy's delay; it counts as a retry.

    A longer delay than MAX_DELAY is cut to that.
    """

    def __init__(self, delay: float | timedelta, reason: str = "the handler asked for another try") -> None:
        super().__init__(reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if self.delay < timedelta(0):
            raise ValueError(f"RetryLater needs a delay of at least 0 seconds, not {delay}")


class GiveUp(Exception):
    """Moves the task to the dead letters at once: no retry can succeed."""


class TimeLimitExceeded(BaseException):
    """Raised inside a handler when its time limit is over.

    A BaseException, so that `except Exception` does not swallow it; `finally` blocks run. A handler that continues is
    killed shortly after.
    """


class TaskCancelled(BaseException):
    """Raised inside a handler when its task was cancelled."""


class LeaseLost(BaseException):
    """Raised by a step whose result cannot be stored, because another worker may have the task already.

    A BaseException, so that `except Exception` does not swallow it; the attempt's return value is not stored either.
    """


class TaskSuspended(BaseException):
    """Raised by `sleep` and `wait_for` to end the attempt: the task runs again when the sleep or the wait is over.

    A BaseException, so that `except Exception` does not swallow it; `finally` blocks run. A handler that catches it has
    to raise it again. `until_us` is the instant in microseconds, `awaits` the kind and the name of the step.
    """

    def __init__(self, message: str, until_us: int, awaits: str) -> None:
        super().__init__(message)
        self.until_us = until_us
        self.awaits = awaits


class StepFailed(Exception):
    """Raised by a step that failed permanently with an error of its `give_up_on`, in this attempt or an earlier one.

    `step` is its name, `error_type` the class name of the error. A task that does not handle it becomes a dead letter.
    """

    def __init__(self, step: str, error_type: str, message: str) -> None:
        super().__init__(f"step {step!r} failed with {error_type}: {message}")
        self.step = step
        self.error_type = error_type
        self.message = message


class ChildFailed(Exception):
    """Raised by `gather` when a child did not complete.

    `task_id` is the child, `state` how it ended ("removed" when it is not on record), `error` the class and message of
    its failure. A task that does not handle it becomes a dead letter.
    """

    def __init__(self, task_id: str, state: str, error: str, failures: int = 1) -> None:
        others = f" ({failures} children did not complete)" if failures > 1 else ""
        super().__init__(f"child {task_id} is {state}{': ' if error else ''}{error}{others}")
        self.task_id = task_id
        self.state = state
        self.error = error


class SignalTimeout(TimeoutError):
    """Raised by `wait_for` when the signal did not arrive in time, in this attempt or an earlier one.

    A task that does not handle it becomes a dead letter.
    """


class DuplicateStep(Exception):
    """Two steps of one attempt have the same name."""


class WorkflowChanged(Exception):
    """A handler came to a new step before steps that an earlier attempt has stored: its code has changed meanwhile.

    The function of the new step is not called, and the task becomes a dead letter.
    """
