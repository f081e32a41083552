"""The pages of the dashboard that show all of three partitions, and bulk actions over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import Client

from taskqueue.dashboard.auth.users import Users
from taskqueue.dashboard.partitions import PartitionedDashboard
from taskqueue.shared.domain.partition import partition_of_id
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.redis.client import connect
from taskqueue.shared.stores.audit import Audit
from taskqueue.shared.stores.bulk_actions import BulkActions
from tests.integration.dashboard.conftest import bury
from tests.integration.partitions.conftest import Routed

ROW = re.compile(r'id="row-([^"]+)"')


class Pages(Client):
    """A browser in front of the dashboard."""

    site: PartitionedDashboard

    def rows(self, path: str) -> list[str]:
        """The ids of the tasks that a page lists."""
        return ROW.findall(self.text(path))

    def text(self, path: str) -> str:
        answer = self.get(path, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return answer.text

    def all_rows(self, path: str) -> list[list[str]]:
        """The same of all pages of a list."""
        found = list[list[str]]()
        while True:
            text = self.text(path)
            found.append(ROW.findall(text))
            older = re.search(r'href="([^"]+)">Older', text)
            if older is None:
                return found
            path = older[1].replace("&amp;", "&")

    def send(self, path: str, status: int = 302, **form: Any) -> str:
        """Posts a form; returns where it leads, or the page when it leads nowhere."""
        [token] = set(re.findall(r'name="csrf" value="([^"]+)"', self.text("/tasks") + self.text("/partitions/all?to=/tasks/new")))
        answer = self.post(path, data={"csrf": token, **form})
        assert answer.status_code == status, answer.text
        return answer.headers.get("Location", answer.text)
