"""The command `firmq` against a gateway, a worker and a housekeeper that run."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.cli.main import main
from firmq.shared.cli.output import Output
from firmq.shared.client import Progress, Task, TaskState
from tests.integration.client.conftest import Running
from tests.support.harness import ROOT, free_port
from tests.support.keys import keys


class Command:
    """Runs the command in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """What it prints."""
        ended = main(["--url", self.url, *arguments])
        said = self.capsys.readouterr()
        self.err = said.err
        assert ended == status, said
        return said.out

    def json(self, *arguments: str, status: int = 0) -> list[Any]:
        """What it prints for programs."""
        return [json.loads(line) for line in self("--json", *arguments, status=status).splitlines()]


@pytest.fixture
def run(running: Running, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(running.url, capsys)


def test_a_task_is_submitted_watched_shown_and_its_result_printed(run: Command) -> None:
    task = run("submit", "echo", '{"a": 1}', "--priority", "high", "--tag", "by-hand").strip()
    assert len(task) == 26
    lines = run("watch", task).splitlines()
    assert lines[-1].endswith("completed")
    assert json.loads(run("wait", task)) == {"a": 1}
    shown = run("show", task)
    assert "by-hand" in shown
    assert "completed" in shown
    [plain] = run.json("show", task)
    assert (plain["status"], plain["result"], len(plain["attempts"])) == ("completed", {"a": 1}, 1)
    assert task in run("list", "--tag", "by-hand")
    assert [each["task_id"] for each in run.json("list", "--tag", "by-hand")] == [task]


def test_data_that_is_no_json_is_text(run: Command) -> None:
    assert json.loads(run("wait", run("submit", "echo", "to be or not").strip())) == "to be or not"


def test_a_task_that_fails_ends_the_command_with_status_1(run: Command) -> None:
    run("submit", "fail", '{"message": "no ink"}', "--max-retries", "0", "--watch", status=1)
    [dead] = [each for each in run.json("dlq", "list", "--type", "fail") if each["error"]["message"] == "no ink"]
    run("wait", dead["task_id"], status=1)
    assert run.err == f"firmq: task {dead['task_id']} is failed: RuntimeError: no ink\n"


def test_dead_letters_are_listed_sent_back_and_removed(run: Command) -> None:
    task = run("submit", "fail", '{"message": "again"}', "--max-retries", "0").strip()
    run("watch", task, status=1)
    assert "RuntimeError: again" in run("dlq", "list")
    run("dlq", "retry", task)
    run("watch", task, status=1)
    assert run("dlq", "delete", task) == f"{task} removed\n"
    run("dlq", "delete", task, status=3)
    run("dlq", "delete", status=2)
    assert run.err == "firmq: which dead letters: give either their ids or --all\n"
    run("submit", "fail", "{}", "--max-retries", "0", "--watch", status=1)
    run("dlq", "delete", *(each["task_id"] for each in run.json("dlq", "list", "--type", "fail")))
    assert run("dlq", "list", "--type", "fail") == "none\n"


def test_scores_are_given_filtered_and_changed(run: Command) -> None:
    task = run("submit", "echo", "1", "--delay", "3600", "--score", "7.5", "--tag", "scored").strip()
    between = ("list", "--tag", "scored", "--min-score", "7", "--max-score", "8")
    assert [each["score"] for each in run.json(*between)] == [7.5]
    assert run.json("update", task, "--score", "3")[0]["score"] == 3
    assert run.json(*between) == []
    dead = run("submit", "fail", "{}", "--max-retries", "0").strip()
    run("watch", dead, status=1)
    run("dlq", "retry", dead, "--score", "0")
    assert run.json("show", dead)[0]["score"] == 0
    run("dlq", "retry", "--all", "--score", "0", status=2)
    run("submit", "echo", "1", "--score", "-1", status=3)
    assert "must be a number from 0 to 9007199254740992" in run.err


def test_tasks_of_a_period_are_listed(run: Command) -> None:
    tasks = [run("submit", "echo", "1", "--tag", "period").strip() for _ in range(3)]
    _, at, _ = [run.json("show", each)[0]["created_at"] for each in tasks]
    here = datetime.fromisoformat(at).astimezone().replace(tzinfo=None).isoformat()

    def listed(*period: str) -> list[str]:
        return [each["task_id"] for each in reversed(run.json("list", "--tag", "period", *period))]

    assert listed("--since", at) == tasks[1:]
    assert listed("--until", at) == tasks[:2]
    assert listed("--since", here, "--until", here) == [tasks[1]]


def test_a_time_without_a_zone_is_local(run: Command) -> None:
    here = datetime.now().astimezone().replace(microsecond=0) + timedelta(days=3)  # as a person reads it
    naive = here.replace(tzinfo=None).isoformat()
    task = run("submit", "echo", "1", "--run-at", naive).strip()
    assert datetime.fromisoformat(run.json("show", task)[0]["next_attempt_at"]) == here
    run("update", task, "--delay", "60")
    run("update", task, "--run-at", naive)
    assert datetime.fromisoformat(run.json("show", task)[0]["next_attempt_at"]) == here
    run("audit", "--since", naive)
    run("timeline", "--until", (here - timedelta(days=3)).replace(tzinfo=None).isoformat())


def test_a_file_of_tasks_is_sent_as_a_batch(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "tasks.ndjson"
    file.write_text("\n".join(json.dumps({"type": "echo", "data": n}) for n in range(30)) + '\n{"type": "nonsense"}\n')
    out = run("batch", str(file), "--name", "by hand", "--watch", status=1)
    assert "line 31 refused: " in out
    assert ": 30 accepted, 1 refused" in out
    assert "30 of 30 ended  30 completed" in out
    file.write_text('{"type": "echo", "data": 1}\nnot json\n')
    run("batch", str(file), status=2)
    assert "line 2 is not JSON" in run.err
    assert (
        "was closed with the 1 tasks accepted before this error; resend the whole batch with --idempotency-key '"
        in (run.err)
    )


def test_a_line_of_a_batch_is_named_by_its_number_in_the_file(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "tasks.ndjson"
    file.write_text('\ufeff\n{"type": "echo", "data": 1}\r\n\n{"type": "nonsense"}\n')
    assert "line 4 refused: " in run("batch", str(file), status=1)
    file.write_text('{"type": "echo", "data": 1}\n\n{"type": "echo", "data": 1e999}\n')
    run("batch", str(file), status=2)
    assert "line 3 is not JSON" in run.err


def test_a_batch_comes_from_standard_input_too(running: Running) -> None:
    lines = b"".join(b'{"type": "echo", "data": %d}\n' % n for n in range(5))
    done = subprocess.run(
        [sys.executable, "-m", "firmq", "--url", running.url, "--json", "batch", "-"],
        input=lines,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    *items, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["index"] for each in items] == list(range(5))
    assert last["accepted"] == 5


def test_queues_schedules_and_locks_are_looked_after(run: Command) -> None:
    run("queues", "pause", "low", "--reason", "a test")
    assert "a test" in run("queues", "list")
    run("queues", "resume", "low")
    assert not any(each["paused"] for each in run.json("queues", "list"))
    run("types", "pause", "noop", "--reason", "a test", "--until", "2100-01-01T12:00:00Z")
    assert "2100-01-01" in run("types", "list")
    assert run.json("types", "show", "noop")[0]["paused_reason"] == "a test"
    run("types", "resume", "noop")
    assert not any(each["paused"] for each in run.json("types", "list"))
    [moved] = run.json("queues", "move-foreign", "low", "--to", "imports")
    assert moved["moved"] == 0
    run("queues", "move-foreign", "low", "--to", "high", status=3)
    assert "high belongs to this system" in run.err
    run("schedules", "put", "nightly", "echo", "5", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    assert "0 3 * * *" in run("schedules", "list")
    run("schedules", "pause", "nightly", "--reason", "a test")
    run("schedules", "resume", "nightly")
    [made] = run.json("schedules", "run", "nightly")
    assert json.loads(run("wait", made["task_id"])) == 5
    run("schedules", "delete", "nightly")
    run("schedules", "show", "nightly", status=3)
    assert "recovery" in run("locks", "list")
    run("locks", "unlock", "recovery", "--token", "none", "--reason", "a test", status=3)


EVIL = "\x1b[2J\x1b]0;owned\x07all is well\x7f \x9b31m \u202e\u2028\t\r\nforged line"


def test_control_characters_do_not_reach_the_terminal(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "tasks.ndjson"
    file.write_text(json.dumps({"type": "fail", "data": {"message": EVIL}, "max_retries": 0}))
    item, sent = run.json("batch", str(file), "--name", EVIL)
    task, batch = item["task_id"], sent["batch_id"]
    run("queues", "pause", "low", "--reason", EVIL)
    said = [run("watch", task, status=1), run("wait", task, status=1) or run.err]
    said += [run(*words) for words in (("show", batch), ("show", task), ("dlq", "list"), ("queues", "list"))]
    as_json = run("--json", "show", batch)
    for each in (*said, as_json):
        assert "all is well" in each
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]|^forged", each, re.MULTILINE)
    assert json.loads(as_json)["name"] == EVIL, "for programs nothing is lost"
    run("queues", "resume", "low")
    run("dlq", "delete", task)


def test_a_schedule_that_cannot_be_read_is_named_beside_the_list_with_what_to_do(
    running: Running, run: Command
) -> None:
    run("schedules", "put", "broken", "echo", "5", "--interval", "3600")
    run("schedules", "put", "whole", "echo", "5", "--interval", "3600")
    running.system.redis.hset(keys.schedule("broken"), "spec", "{")
    assert [each["name"] for each in run.json("schedules", "list")] == ["whole"]
    assert json.loads(run.err) == {"unreadable": ["broken"]}
    shown = run("schedules", "list")
    assert "whole" in shown
    assert "broken" not in shown
    advice = "firmq schedules delete NAME, then put it again"
    assert run.err == f'firmq: unreadable, not shown: "broken"; {advice}\n'
    run("schedules", "delete", "broken")
    run("schedules", "put", "broken", "echo", "5", "--interval", "3600")
    assert "broken" in run("schedules", "list")
    assert run.err == ""
    run("schedules", "delete", "broken")
    run("schedules", "delete", "whole")


def test_a_task_that_cannot_be_read_is_listed_as_broken(running: Running, run: Command) -> None:
    waiting = run("submit", "echo", "1", "--delay", "600").strip()
    dead = run("submit", "fail", "{}", "--max-retries", "0").strip()
    run("watch", dead, status=1)
    for task in (waiting, dead):
        running.system.redis.hset(keys.rq_job(task), "tags", "{")
    lines = [line.split() for line in run("list", "--limit", "0").splitlines()]
    assert [line[1:3] for line in lines if line[0] in (waiting, dead)] == [["?", "broken"]] * 2
    [why] = [line for line in run("dlq", "list").splitlines() if line.startswith(dead)]
    assert "corrupt record" in why
    assert all(each["corrupt"] for each in run.json("list", "--limit", "0") if each["task_id"] in (waiting, dead))


def test_each_way_to_end_has_its_status(run: Command) -> None:
    later = run("submit", "echo", "1", "--delay", "600").strip()
    run("wait", later, "--for", "0.1", status=4)
    run("cancel", later, "--reason", "a test")
    ended = run("submit", "echo", "1").strip()
    run("wait", ended)
    run("cancel", ended, status=3)
    run("show", "nothing", status=3)
    assert run.err.startswith("firmq: Not found: ")
    run("submit", "nonsense", status=3)
    run("--json", "submit", "nonsense", status=3)
    assert json.loads(run.err)["type"] == "/problems/unknown-task-type"
    with pytest.raises(SystemExit) as usage:
        main(["submit"])
    assert usage.value.code == 2


def test_an_unreachable_gateway_is_one_line_and_status_5(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["--url", url, "--patience", "0", "list"]) == 5
    said = capsys.readouterr().err
    assert said.startswith(f"firmq: {url} does not answer")
    assert len(said.splitlines()) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_changes() -> None:
    screen = Terminal()
    out = Output(screen, as_json=False)
    seen = Task(task_id="1", type="t", status=TaskState.RUNNING, queue="normal")
    out.progress(seen)
    out.progress(replace(seen, progress=Progress(fraction=0.5, message="half")))
    out.end_progress()
    first, second = screen.getvalue().split("\r")[1:]
    assert first.startswith("[..............................]   0%  running")
    assert second.startswith("[###############...............]  50%  running  half")
    assert screen.getvalue().count("\n") == 1


def test_a_message_of_progress_paints_nothing() -> None:
    screen = Terminal()
    seen = Task(task_id="1", type="t", status=TaskState.RUNNING, queue="normal")
    Output(screen, as_json=False).progress(replace(seen, progress=Progress(fraction=0.5, message="\x1b[2J\r\n100%")))
    assert screen.getvalue().startswith("\r[###############...............]  50%  running  \\u001b[2J\\u000d\\n100%")


def test_tasks_are_counted_by_the_content_of_their_data(run: Command) -> None:
    for customer in ("ann", "ann", "bob"):
        run("submit", "echo", json.dumps({"customer": {"id": customer}}), "--tag", "counted")
    lines = run("breakdown", "--tag", "counted").splitlines()
    assert lines[:3] == ["3 tasks", "", "customer.id: 2 different"]
    assert [line.split() for line in lines[3:6]] == [["VALUE", "TASKS"], ["ann", "2"], ["bob", "1"]]
    assert "tags: 1 different" in lines
    [found] = run.json("breakdown", "customer.id", "--tag", "counted")
    assert found["complete"] is True
    assert found["fields"][0]["values"] == [{"value": "ann", "tasks": 2}, {"value": "bob", "tasks": 1}]
    assert "no batch" in run("breakdown", "--batch", "unknown", status=3) + run.err


def test_the_timeline_shows_what_people_did(run: Command) -> None:
    run("queues", "pause", "low", "--reason", "a bad release")
    run("queues", "resume", "low")
    assert "a bad release" in run("timeline")
    [found] = run.json("timeline")
    assert found["complete"] is True
    assert any("low" in each["title"] for each in found["events"])
    assert "Lost workers are on record for 7 days" in run("timeline", "--until", "1970-01-02T00:00:00+00:00")
    run("timeline", "--since", "2030-01-02T00:00:00+00:00", status=3)
    assert "since" in run.err


def test_a_task_is_shown_for_people(run: Command) -> None:
    task = run("submit", "fail", "--tag", "a", '{"message": "no\\nink"}', "--max-retries", "0", "--tag", "b").strip()
    run("watch", task, status=1)
    lines = run("show", task).splitlines()
    assert re.match(r"error +RuntimeError: no\\nink$", next(line for line in lines if line.startswith("error")))
    assert re.match(r"tags +a, b$", next(line for line in lines if line.startswith("tags")))
    assert lines[lines.index("data") + 1] == '  {"message": "no\\nink"}'
    at = next(at for at, line in enumerate(lines) if re.match(r"attempt 1: failed, \d{4}-.* s, on \S+$", line))
    assert lines[at + 1] == "  Traceback (most recent call last):"
    assert lines[-2:] == ["  RuntimeError: no", "  ink"]
    assert run.json("show", task)[0]["attempts"][0]["error"]["traceback"].count("\n") > 2
    assert json.loads(run("show", task, "-o", "json"))["deliveries"] == []


def test_limits_are_set_listed_and_cleared(run: Command) -> None:
    shown = run("limits", "set", "--concurrency", "3", "key:partner.eu", "--rate", "10/s")
    assert re.search(r"^concurrency +3$", shown, re.MULTILINE)
    [limit] = [each for each in run.json("limits", "list") if each["name"] == "key:partner.eu"]
    assert (limit["concurrency"], limit["rate"], limit["source"]) == (3, "10/s", "api")
    run("limits", "clear", "key:partner.eu")
    run("limits", "clear", "key:partner.eu", status=3)
    run("limits", "set", "partner", "--concurrency", "1", status=2)
    assert run.err == "firmq: a limit is named type:NAME or key:NAME, got 'partner'\n"


def test_workers_are_listed(run: Command) -> None:
    [worker] = run.json("workers")
    assert worker["state"] in ("idle", "busy")
    assert worker["name"] in run("workers")
