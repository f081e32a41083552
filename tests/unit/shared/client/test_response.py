"""What a response permits next."""

from __future__ import annotations

import pytest

from firmq.shared import client
from firmq.shared.client.response import LEAST_PAUSE, retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5.0), (0.5, 0.5), ("0", LEAST_PAUSE), (-1, LEAST_PAUSE), ("nan", LEAST_PAUSE), ("soon", None), ([], None)],
)
def test_a_retry_is_never_asked_for_without_a_pause(value: object, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_every_public_name_is_listed() -> None:
    assert set(client.__all__) <= set(dir(client))
