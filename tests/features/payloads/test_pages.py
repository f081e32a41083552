"""Pages name payloads without reading them; downloads and retries with other data do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from firmq.shared.domain.task import NewTask
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores.payloads import Payloads
from tests.integration.dashboard.conftest import Browser
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System

LARGE = f'["{"x" * 5000}", {{"password": "hunter2"}}]'


def dead_letter(system: System, folder: Path) -> str:
    payloads = Payloads(open_payload_store(f"file://{folder}"), 1024)
    new = NewTask(id="task", type="noop", data=payloads.data_of("task", LARGE), queue="normal")
    system.queues.submit([new])
    system.scripts.call("claim", *claiming("w", "t", 60_000_000, 1, 1 << 20, "normal", 1))
    error = '{"type":"ValueError","message":"no"}'
    assert report(system.scripts, ended("task", "t", "failed", '{"outcome":"failed"}', error=error)) == [1]
    return "task"


def test_a_page_names_the_payload_and_the_download_has_it(
    open_browser: Callable[..., Browser], system: System, tmp_path: Path
) -> None:
    folder = tmp_path / "payloads"
    folder.mkdir()
    browser = open_browser(payload_store=f"file://{folder}", payload_threshold=1024)
    task = dead_letter(system, folder)
    page = browser.text(f"/tasks/{task}")
    assert "5.0 kB in the payload store: see the download" in page
    assert "xxxxx" not in page
    download = browser.text(f"/tasks/{task}/data.json")
    assert "xxxxx" in download
    assert "hunter2" not in download
    folder.rename(folder.with_name("away"))
    assert browser.get(f"/tasks/{task}").status_code == 200
    assert browser.get(f"/tasks/{task}/data.json").status_code == 503
    assert browser.post(f"/tasks/{task}/retry-with", data="[1]").status_code == 503
    folder.with_name("away").rename(folder)
    browser.post(f"/tasks/{task}/retry-with", data=f'["{"y" * 5000}"]')
    assert "yyyyy" in browser.text(f"/tasks/{task}/data.json")
