"""RQ's code runs the call that was checked, and reads no other from the record."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

from redis import Redis

from firmq.worker.features.rq.allowed import Allowed
from firmq.worker.features.rq.checked_job import CheckedJob
from tests.support import rq_functions as shop


def test_the_checked_call_is_run_whatever_the_record_says() -> None:
    name = "tests.support.rq_functions.add"
    record = {b"data": zlib.compress(pickle.dumps(("os.getpid", None, (), {})))}
    call: tuple[Any, ...] = (name, None, (1, 2), {})
    checked = Allowed([name], pickles=True).check({b"data": zlib.compress(pickle.dumps(call))})
    job = CheckedJob("a", connection=Redis(), serializer=checked.serializer)
    job.restore_checked(record, checked)
    assert (job.func, job.args, job.kwargs) == (shop.add, (1, 2), {})
