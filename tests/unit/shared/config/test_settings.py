"""Settings: environment before YAML, and every mistake at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError


def mistakes(environment: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(environment)
    return str(caught.value).splitlines()


def test_without_anything_the_documented_defaults_hold() -> None:
    settings = load({})
    policy = settings.retry_policy
    assert (policy.max_retries, policy.initial_delay, policy.multiplier, policy.max_delay) == (3, 5, 2.0, 3600)
    assert settings.bind_host == "127.0.0.1"
    assert settings.queues == {"critical": 6, "high": 4, "normal": 3, "low": 1}
    assert settings.housekeeper_distributed_execution_enabled


@pytest.mark.parametrize(
    ("given", "pauses", "retries"),
    [
        ({"RETRY_PAUSES": "15s, 1m, 5m"}, (15, 60, 300), 3),
        ({"RETRY_PAUSES": "15"}, (15,), 1),
        ({"RETRY_PAUSES": "1,2", "MAX_RETRIES": "5"}, (1, 2), 5),
        ({"RETRY_PAUSES": "1,2,3", "MAX_RETRIES": "0"}, (1, 2, 3), 0),
        ({"RETRY_PAUSES": "", "INITIAL_RETRY_DELAY": "7"}, (), 3),
    ],
)
def test_pauses_stand_in_place_of_growing_delays(
    given: dict[str, str], pauses: tuple[float, ...], retries: int
) -> None:
    policy = load(given).retry_policy
    assert (policy.pauses, policy.max_retries) == (pauses, retries)
    assert policy.override({"initial_delay": 9}).pauses == (), "a type or a task may have its own"


def test_pauses_are_a_list_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("retry:\n  pauses: [15s, 60, 5m]\n")
    assert load({"CONFIG_FILE": str(file)}).retry_policy.pauses == (15, 60, 300)
    for wrong in ("soon", "1,-2", ",".join(["1"] * 101), "1e9d"):
        assert mistakes({"RETRY_PAUSES": wrong})[0].startswith("RETRY_PAUSES")


def test_all_mistakes_are_reported_together_with_the_names_to_change() -> None:
    lines = mistakes({"MAX_RETRIES": "many", "LEASE_TIME": "0s", "LOG_LEVEL": "loud", "QUEUES": "Caps:1"})
    assert len(lines) == 4
    for name in ("MAX_RETRIES", "LEASE_TIME", "LOG_LEVEL", "QUEUES"):
        assert any(line.startswith(name) for line in lines)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("250ms", 0.25), ("5m", 300), ("1.5h", 5400), ("2d", 172800)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert load({"DRAIN_GRACE": text}).drain_grace == seconds


@pytest.mark.parametrize("text", ["soon", "-5", "5 parsecs", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert mistakes({"DRAIN_GRACE": text})[0].startswith("DRAIN_GRACE")


def test_the_yaml_tree_of_the_reference_is_understood_and_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "housekeeper:\n  distributed_execution:\n    enabled: true\n    instance_id: pod-1\n    lock_ttl: 45s\n"
        "  unlock:\n    parallelism: 10\nretry:\n  max_retries: 7\n"
    )
    settings = load({"CONFIG_FILE": str(file), "MAX_RETRIES": "2"})
    assert settings.housekeeper_distributed_execution_enabled
    assert settings.housekeeper_distributed_execution_instance_id == "pod-1"
    assert settings.housekeeper_distributed_execution_lock_ttl == 45
    assert settings.housekeeper_unlock_parallelism == 10
    assert settings.max_retries == 2


def test_a_misspelt_yaml_key_is_a_mistake_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("retry:\n  max_retrys: 7\n")
    assert "did you mean retry.max_retries?" in mistakes({"CONFIG_FILE": str(file)})[0]


@pytest.mark.parametrize("content", ["a: [", "- 1", "\x00"])
def test_a_file_that_is_no_mapping_is_a_mistake(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    assert mistakes({"CONFIG_FILE": str(file)})


def test_a_missing_file_is_a_mistake() -> None:
    assert "cannot be read" in mistakes({"CONFIG_FILE": "/nowhere.yaml"})[0]


def test_an_error_never_shows_a_password() -> None:
    lines = mistakes({"REDIS_PORT": "x", "REDIS_PASSWORD": "hunter2"})
    assert not any("hunter2" in line for line in lines)


def test_the_address_of_redis_is_made_of_its_parts() -> None:
    url = load({"REDIS_HOST": "store", "REDIS_PORT": "7000", "REDIS_PASSWORD": "a/b"}).store_url
    assert url == "redis://:a%2Fb@store:7000/0"


def test_queues_must_contain_the_default_priority() -> None:
    assert "DEFAULT_PRIORITY" in mistakes({"QUEUES": "fast:1"})[0]


def test_a_worker_takes_from_any_names_and_patterns_with_weights() -> None:
    settings = load({"WORKER_QUEUES": "gpu-*:5, default, mail.eu:1", "QUEUE_EXECUTORS": "gpu-1:2, video:1"})
    assert settings.worker_queues == {"gpu-*": 5, "default": None, "mail.eu": 1}
    assert load({"WORKER_QUEUES": "critical=6,low=1"}).worker_queues == {"critical": 6, "low": 1}
    assert settings.queue_selection.names == ("gpu-1", "normal", "mail.eu")
    assert settings.claimed_queue_executors == {"gpu-1": 2}
    assert "'a/b' is not a name of a queue" in mistakes({"WORKER_QUEUES": "a/b"})[0]
    assert "WORKER_QUEUES" in mistakes({"WORKER_QUEUES": "gpu:fast"})[0]
    assert "'gpu-*' is not a name of a queue" in mistakes({"QUEUE_EXECUTORS": "gpu-*:1"})[0]


def test_the_bounds_of_the_scores_of_a_worker_leave_some_between_them() -> None:
    assert load({}).worker_min_score is load({}).worker_max_score is None
    settings = load({"WORKER_MIN_SCORE": "0", "WORKER_MAX_SCORE": "9007199254740992"})
    assert (settings.worker_min_score, settings.worker_max_score) == (0, 2**53)
    assert load({"WORKER_MIN_SCORE": "1.5", "WORKER_MAX_SCORE": "1.5"}).worker_min_score == 1.5
    assert "higher than WORKER_MAX_SCORE" in mistakes({"WORKER_MIN_SCORE": "2", "WORKER_MAX_SCORE": "1"})[0]
    for wrong in ("-1", "1e16", "nan", "soon"):
        assert "WORKER_MAX_SCORE" in mistakes({"WORKER_MAX_SCORE": wrong})[0]


def test_executors_of_a_queue_are_a_number_of_each_queue_that_the_worker_takes_from() -> None:
    settings = load({"QUEUE_EXECUTORS": "low:1, high:2", "WORKER_QUEUES": "low"})
    assert settings.claimed_queue_executors == {"low": 1}
    assert 'must look like "low:1' in mistakes({"QUEUE_EXECUTORS": "low"})[0]
    assert "QUEUE_EXECUTORS (low)" in mistakes({"QUEUE_EXECUTORS": "low:0"})[0]


def schedules_in(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(text, "utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("true", True),
        ("~", None),
        ("-1.5e3", -1500.0),
        ("7", 7),
        ("{1: a, no: b}", {"1": "a", "no": "b"}),
        ('"\\u00fc"', "ü"),
    ],
)
def test_the_data_of_a_schedule_is_read_as_it_is_written(value: str, read: object, tmp_path: Path) -> None:
    file = schedules_in(tmp_path, f"schedules:\n  report:\n    type: t\n    interval: 60\n    data: {value}\n")
    [schedule] = load({"CONFIG_FILE": file}).declared_schedules() or []
    assert json.loads(schedule.data) == read


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("data: .nan", 5, "schedules.report.data is not a finite number"),
        ("data: {x: [1, -.inf]}", 5, "schedules.report.data.x.1 is not a finite number"),
        ("data: 1.5e999", 5, "schedules.report.data is not a finite number"),
        ("data: !!binary aGVsbG8=", 5, "schedules.report.data is of the YAML type binary"),
        ("data: !!set {a, b}", 5, "is of the YAML type set"),
        ("data: &a [*a]", 5, "contains itself"),
        ("data: " + "[" * 100 + "]" * 100, 5, "nested more than 64 levels deep"),
        ("data: " + "[" * 3000 + "]" * 3000, 0, "nested too deeply"),
        ('data: "\\ud83d"', 5, "schedules.report.data is not a valid str"),
        ("data: {[1]: 2}", 5, "has a key that is not text"),
        ("interval: 90", 5, "schedules.report.interval appears twice"),
        ("data: &a {<<: *a, x: 1}", 5, "schedules.report.data contains itself"),
        ("data: &a {<<: [{y: 1}, *a], x: 1}", 5, "schedules.report.data contains itself"),
        ("data: {<<: 5}", 5, "schedules.report.data merges a value that is not a mapping"),
        ("data: {<<: {x: 1, x: 2}}", 5, "schedules.report.data.x appears twice"),
        ("\tdata: 1", 5, "not YAML: found character"),
        ("tags: nightly", 5, "schedules.report.tags: must be an array, got 'nightly'"),
        ("timezone: no", 5, "'no' is not a time zone"),
        ("missed: 5", 5, "schedules.report.missed: must be one of 'skip', 'once', 'all'"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(text: str, line: int, says: str, tmp_path: Path) -> None:
    file = schedules_in(tmp_path, f"schedules:\n  report:\n    type: t\n    interval: 60\n    {text}\n")
    [mistake] = mistakes({"CONFIG_FILE": file})
    assert says in mistake
    assert mistake.startswith(f"{file}, line {line}: " if line else "CONFIG_FILE: ") or "time zone" in says


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("true", "a boolean"),
        ("1.5", "1.5"),
        *((each, f"'{each}'") for each in ("1:30", "5m", "no", "2026-01-31")),
        ("'60'", "'60'"),
    ],
)
def test_an_interval_is_a_whole_number(value: str, got: str, tmp_path: Path) -> None:
    file = schedules_in(tmp_path, f"schedules:\n  report: {{type: t,\n    interval: {value}}}\n")
    [mistake] = mistakes({"CONFIG_FILE": file})
    assert mistake == f"{file}, line 3: schedules.report.interval: must be a whole number, got {got}"


def test_a_setting_of_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = schedules_in(tmp_path, "gateway:\n  port: no\nqueues:\n  high: 5000\n  normal: 1\n")
    first, second = mistakes({"CONFIG_FILE": file})
    assert first.startswith(f"{file}, line 2: gateway.port: ")
    assert second.startswith(f"{file}, line 4: queues.high: ")


def test_anchors_and_merge_keys_are_read(tmp_path: Path) -> None:
    text = "schedules:\n  a: &a {type: t, interval: 60, data: 1}\n  b: &b {<<: *a, data: 2}\n"
    text += "  c: *b\n  d: {<<: *b, type: u}\n  e: {<<: [{data: 5}, *b], <<: {data: 6}, type: u}\n"
    found = load({"CONFIG_FILE": schedules_in(tmp_path, text)}).declared_schedules() or []
    assert [(each.name, each.type, each.data) for each in found] == [
        ("a", "t", "1"),
        ("b", "t", "2"),
        ("c", "t", "2"),
        ("d", "u", "2"),
        ("e", "u", "5"),
    ]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_a_file_in_another_encoding_is_refused_in_one_line(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes("app_version: Größe\n".encode(encoding))
    [mistake] = mistakes({"CONFIG_FILE": str(file)})
    assert "it is not UTF-8 text" in mistake
    file.write_bytes("\ufeffbind_host: 127.0.0.2\r\n".encode())
    assert load({"CONFIG_FILE": str(file)}).bind_host == "127.0.0.2"


def test_a_setting_that_is_json_is_strict(tmp_path: Path) -> None:
    [mistake] = mistakes({"SCHEDULES": '{"report": {"type": "t", "interval": 60, "data": NaN}}'})
    assert mistake.startswith("SCHEDULES: must be a JSON object: ")


def test_a_value_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p#/w\n")
    assert load({"REDIS_PASSWORD_FILE": str(secret)}).redis_password == "p#/w"
    assert load({"REDIS_PASSWORD_FILE": str(secret), "REDIS_PASSWORD": ""}).redis_password == "p#/w"
    assert load({"REDIS_PASSWORD_FILE": str(secret), "REDIS_PASSWORD": "x"}).redis_password == "x"
    assert load({"API_KEYS_FILE": "/none"}).api_keys_file == "/none"
    with pytest.raises(SettingsError, match=r"^REDIS_PASSWORD_FILE: the file cannot be read: No such file"):
        load({"REDIS_PASSWORD_FILE": str(tmp_path / "none")})
    secret.write_text("\n")
    with pytest.raises(SettingsError, match=r"^REDIS_PASSWORD_FILE: the file is empty"):
        load({"REDIS_PASSWORD_FILE": str(secret)})
