"""Tasks that are jobs of RQ, with partitions."""

from __future__ import annotations

import pytest

from firmq.shared.config.settings import Settings
from firmq.worker import main as worker_main


def test_a_worker_of_several_partitions_does_not_offer_the_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = ("redis://localhost:1", "redis://localhost:2")
    about = {"redis_partitions": partitions, "rq_task_queues": ("imports",), "rq_allow": ("shop.*",)}
    settings = Settings.model_validate(about)
    monkeypatch.setattr(worker_main, "load_or_exit", lambda: settings)
    with pytest.raises(SystemExit):
        worker_main.main()
    assert "RQ_TASK_QUEUES works with one Redis only" in capsys.readouterr().err
