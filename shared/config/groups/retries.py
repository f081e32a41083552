"""Retries and crashes of tasks that override nothing."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Pauses, Seconds
from firmq.shared.domain.retry import RetryPolicy


class RetrySettings(Group):
    """Retries and crashes of tasks that override nothing."""

    max_retries: int = at("retry.max_retries", 3, "Retries after the first attempt.", ge=0, le=1000)
    initial_retry_delay: Seconds = at("retry.initial_delay", 5, "Delay before the first retry.")
    retry_backoff_multiplier: float = at("retry.multiplier", 2.0, "Factor from one delay to the next.", ge=1, le=100)
    max_retry_delay: Seconds = at("retry.max_delay", 3600, "Longest delay between attempts.")
    retry_pauses: Pauses = at(
        "retry.pauses",
        (),
        "Delays before the retries, such as 15s, 1m, 5m, instead of growing ones. MAX_RETRIES repeats the last one.",
    )
    retry_jitter: float = at("retry.jitter", 0.0, "Spreads each delay by up to this share of it, 0 to 1.", ge=0, le=1)
    max_crashes: int = at("retry.max_crashes", 3, "Crashes after which a task is dead-lettered.", ge=1, le=100)

    @property
    def retry_policy(self) -> RetryPolicy:
        """Returns the retry policy of a task that overrides nothing."""
        policy = RetryPolicy(
            max_retries=self.max_retries,
            initial_delay=self.initial_retry_delay,
            multiplier=self.retry_backoff_multiplier,
            max_delay=self.max_retry_delay,
            jitter=self.retry_jitter,
        )
        if not self.retry_pauses:
            return policy
        given = {"max_retries": self.max_retries} if "max_retries" in self.model_fields_set else {}
        return policy.override({"pauses": self.retry_pauses, **given})
