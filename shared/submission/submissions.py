"""Direct submission from one process: to the store of the system, or to one of several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TASK_ID
from firmq.shared.registry import added
from firmq.shared.submission.bodies import MOST_PARENTS
from firmq.shared.submission.direct import Submission


def parents_in(tasks: Iterable[Any]) -> Iterator[str]:
    """Yields the ids of the tasks that these depend on; none of a task with too many of them, which is refused."""
    for task in tasks:
        parents = task.get("depends_on") if isinstance(task, Mapping) else None
        if not isinstance(parents, Sequence) or isinstance(parents, str) or len(parents) > MOST_PARENTS:
            continue
        for parent in parents:
            said = parent.get("task_id") if isinstance(parent, Mapping) else parent
            if isinstance(said, str) and TASK_ID.fullmatch(said):
                yield said


class Submissions:
    """Direct submission from one process. A feature that adds stores chooses between them in a subclass."""

    def __init__(self, settings: Settings) -> None:
        self.by_number = {number: Submission(own) for number, own in settings.stores.items()}

    def is_of_parent(self) -> bool:
        """Returns whether this process was forked from the one that made this."""
        return next(iter(self.by_number.values())).is_of_parent()

    def close(self) -> None:
        """Closes the idle connections."""
        for each in self.by_number.values():
            each.close()

    def order(self, task_type: str, key: str | None, options: Mapping[str, Any]) -> list[Submission]:
        """Returns the stores in which to try to store a task, best first; empty if nothing ties it to one."""
        return list(self.by_number.values())

    def free(self, but: Collection[Submission] = ()) -> Submission:
        """Returns a store for a task that nothing ties, if possible another one than these."""
        return next(iter(self.by_number.values()))

    def avoid(self, submission: Submission) -> None:
        """Notes that a store does not answer."""

    def of(self, task_id: str) -> Submission:
        """Returns the store of a task; for an unknown one, one that may have it."""
        return next(iter(self.by_number.values()))


def submissions_to(settings: Settings) -> Submissions:
    """Returns the submission to the stores of these settings."""
    if len(settings.stores) == 1:
        return Submissions(settings)
    [several] = added("submissions")
    chosen: Submissions = several(settings)
    return chosen
