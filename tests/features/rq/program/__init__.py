"""What programs do with RQ, page by page of RQ's documentation, and what they see when Firmq runs their jobs.

`python -m tests.features.rq.program URL VERSION` is such a program: it does all of it, and what it saw is its
last line. It imports RQ, and nothing of Firmq.
"""

from tests.features.rq.program import exceptions, jobs, queues, registries, results, scheduling, workers
from tests.features.rq.program.rows import FEATURES, Program, Row

PAGES = {
    queues.__name__: "Queues, dependencies and callbacks",
    jobs.__name__: "Jobs",
    results.__name__: "Results",
    scheduling.__name__: "Scheduling",
    exceptions.__name__: "Exceptions and retries",
    registries.__name__: "Job registries",
    workers.__name__: "Workers",
}
"""The pages of RQ's documentation, by the module with their features."""

__all__ = ["FEATURES", "PAGES", "Program", "Row"]
