"""The settings, the job and the commands of RQ programs, and what the doctor says of them."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(
    jobs=("rq_scheduler",),
    settings="firmq.shared.features.rq.settings:RqSettings",
    checks="firmq.shared.features.rq.programs:check_rq_programs",
    commands="firmq.shared.features.rq.commands:COMMANDS",
    worker_options={
        "--rq": ("RQ_QUEUES", "queues of RQ programs whose jobs it runs too, separated by commas"),
        "--rq-allow": ("RQ_ALLOW", "functions that these jobs may name, such as 'shop.*'"),
    },
)
