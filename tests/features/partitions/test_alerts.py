"""Alerts name the partition that they are about, and lead to its pages."""

from __future__ import annotations

from tests.features.partitions.conftest import Servers
from tests.support.harness import wait_until
from tests.support.receiver import Receiver, receiving


def lines(webhook: Receiver) -> list[str]:
    return [line for body in webhook.bodies() for line in body["text"].splitlines()]


def test_alerts_name_their_partition(three_servers: Servers) -> None:
    with receiving() as webhook:
        three_servers.system.start(
            "housekeeper",
            ALERT_WEBHOOK_URL=webhook.url,
            WEBHOOK_ALLOW="127.0.0.0/8",
            ALERT_AFTER="300ms",
            HOUSEKEEPER_ALERTS_INTERVAL="100ms",
            HOUSEKEEPER_METRICS_INTERVAL="100ms",
            DASHBOARD_URL="https://queue.example.com",
        )
        for number in range(3):
            wait_until(lambda: any(f"Partition {number}: No worker" in line for line in lines(webhook)), "it is told")  # noqa: B023
        assert any("https://queue.example.com/partitions/2?to=/" in line for line in lines(webhook))
        three_servers.kill(1)
        wait_until(lambda: any("The Redis of partition 1 does not answer" in line for line in lines(webhook)), "told")
        assert any("other partitions continue" in line for line in lines(webhook))
        assert not any("partition 0 does not" in line or "partition 2 does not" in line for line in lines(webhook))
