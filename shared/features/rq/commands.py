"""The commands for systems that run, or ran, jobs of RQ programs."""

from __future__ import annotations

from firmq.shared.cli.command import Command

COMMANDS = {
    "rq-return": Command(
        "firmq.worker.features.rq.way_back",
        "worker",
        "return the jobs of RQ programs to RQ's queues, after the workers that ran them have stopped",
    ),
    "rq-import": Command(
        "firmq.worker.features.rq.schedule_import",
        "worker",
        "make schedules of the entries of rq-scheduler; without --yes, list what each would become",
        add_arguments=lambda one: one.add_argument(
            "--yes", action="store_true", help="make them, and remove the entries"
        ),
        arguments=lambda wanted: [wanted.yes],
        prints=True,
    ),
}
