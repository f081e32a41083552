"""The compose file is safe as it stands, and agrees with the image, the settings, Prometheus and the README."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from sqlalchemy import make_url

from firmq.dashboard import serve as dashboard_server
from firmq.dashboard.auth.users import Users
from firmq.gateway import serve as gateway_server
from firmq.shared.cli.parts import COMMANDS
from firmq.shared.config.settings import Settings, load
from firmq.shared.errors import SettingsError
from firmq.shared.features.history.settings import HistorySettings
from firmq.shared.stores.api_keys import Keyring, Scope, new_key
from tests.deployment import compose_file
from tests.deployment.compose_file import DEFAULTS, PARTS, PASSWORDS, seconds, services
from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT

ALL = sorted(services())
IMAGE = dict(
    re.findall(r"^    (?:ENV )?([A-Z_]+)=([^\s{]+?)(?: \\)?$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
)
"""What the image sets for every part, without what its build arguments name."""
PUBLISHED = {"gateway": 8000, "dashboard": 5001, "prometheus": 9090, "jaeger": 16686, "grafana": 3000}
README = DOCUMENTS
CREDENTIALS = "/var/lib/firmq/credentials"


def settings_of(part: str) -> Settings:
    """The settings as a part finds them in its container."""
    revision = services()[part]["build"]["args"]["REVISION"]
    return load({**IMAGE, "APP_VERSION": revision, **services()[part]["environment"]})


def port_of(part: str) -> int:
    """The port that a part listens on."""
    settings = settings_of(part)
    return {
        "gateway": settings.gateway_port,
        "worker": settings.worker_metrics_port,
        "housekeeper": settings.housekeeper_metrics_port,
        "dashboard": settings.dashboard_port,
    }[part]


# --- it is read ---


@pytest.mark.parametrize("over", [[], ["verify.yml"], ["verify.yml", "stand_ins.yml"]])
def test_compose_reads_the_file_and_what_is_laid_over_it(over: list[str]) -> None:
    done = compose_file.read(["docker-compose.yml", *(f"tests/deployment/{name}" for name in over)])
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings"


def test_containers_are_called_as_the_guide_says_whatever_the_folder_is_called(tmp_path: Path) -> None:
    shutil.copytree(compose_file.DEFAULTS, tmp_path / "shared" / "compose")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    assert json.loads(compose_file.read(folder=tmp_path).stdout)["name"] == "task-queue"
    assert "docker logs task-queue-worker-1" in README


def test_the_logs_of_every_part_go_to_the_collector_of_the_example() -> None:
    folder = ROOT / "examples" / "logs"
    files = ["docker-compose.yml", "examples/logs/docker-compose.logs.yml"]
    assert f"docker compose -f {files[0]} -f {files[1]} --profile grafana up" in (folder / "README.md").read_text()
    done = compose_file.read(files)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings"
    there = json.loads(done.stdout)["services"]
    collector = yaml.safe_load((folder / "fluent-bit.yaml").read_text())["pipeline"]["inputs"][0]
    [port] = there["fluent-bit"]["ports"]
    assert (port["host_ip"], port["target"]) == ("127.0.0.1", collector["port"])
    for part in PARTS:
        assert there[part]["logging"]["driver"] == "fluentd"
        assert there[part]["logging"]["options"]["fluentd-address"] == f"127.0.0.1:{port['published']}"
        assert there[part]["logging"]["options"]["fluentd-async"] == "true", "or nothing starts without the collector"


def test_every_part_sends_its_lines_to_the_loki_of_the_example() -> None:
    files = ["docker-compose.yml", "examples/logs/docker-compose.otlp.yml"]
    assert f"docker compose -f {files[0]} -f {files[1]} --profile grafana up" in (
        (ROOT / "examples" / "logs" / "README.md").read_text()
    )
    done = compose_file.read(files)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings"
    there = json.loads(done.stdout)["services"]
    [config] = [each["source"] for each in there["loki"]["volumes"] if each["target"] == "/etc/loki/loki.yaml"]
    server = yaml.safe_load(Path(config).read_text())["server"]
    for part in PARTS:
        told = there[part]["environment"]
        assert told["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"] == f"http://loki:{server['http_listen_port']}/otlp/v1/logs"
        assert load(told).log_export == "otlp"
        assert there[part]["networks"].keys() & there["loki"]["networks"].keys()


def test_the_example_gives_all_parts_the_folder_for_payloads_that_the_image_has(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy" / "compose.md").read_text().partition("## Large payloads")[2]
    (tmp_path / "override.yml").write_text(page.split("```yaml")[1].split("```")[0])
    done = compose_file.read(["docker-compose.yml", str(tmp_path / "override.yml")])
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)["services"]
    for part in PARTS:
        folder = there[part]["environment"]["PAYLOAD_STORE"].removeprefix("file://")
        assert {each["target"] for each in there[part]["volumes"]} == {folder, CREDENTIALS}, part
        assert f"install -d -o 10001 -g 10001 {folder} {CREDENTIALS} " in (ROOT / "Dockerfile").read_text()


def written(folder: Path, **environment: str) -> dict[str, str]:
    """What the service credentials leaves in its volume."""
    for name in ("credentials", "grafana-credentials"):
        (folder / name).mkdir(exist_ok=True)
    script = (DEFAULTS / "credentials.sh").read_text().replace("/var/lib/firmq", str(folder))
    told = {"PATH": "/usr/bin:/bin", **dict.fromkeys([*PASSWORDS, "GRAFANA_PORT"], ""), **environment}
    said = subprocess.run(["sh", "-c", script], env=told, check=True, capture_output=True, text=True).stdout
    assert "REDIS" not in said
    password = (folder / "grafana-credentials" / "password").read_text()
    assert (password in said) != bool(environment.get("GRAFANA_PASSWORD")), "a chosen one is not shown"
    found = {each.name: each.read_text() for each in folder.glob("*/*")}
    assert found.pop("pgpass") == f"postgres:*:*:firmq:{found['postgres-password']}\n"
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.glob("*/*")}
    assert modes == {**dict.fromkeys(found, 0o440), "pgpass": 0o400}, "libpq reads none that others may read"
    return found


def test_passwords_are_made_once_and_those_of_the_env_file_replace_them(tmp_path: Path) -> None:
    first = written(tmp_path)
    assert {len(each) for each in first.values()} == {48}
    assert written(tmp_path) == first
    mine = written(tmp_path, REDIS_PASSWORD="mine", GRAFANA_PASSWORD="own")
    made = {"postgres-password": first["postgres-password"]}
    assert mine == {"redis-password": "mine", "password": "own", **made}


@pytest.mark.parametrize("environment", [{}, PASSWORDS])
def test_who_needs_a_password_waits_for_it_and_finds_it(environment: dict[str, str]) -> None:
    there = json.loads(compose_file.read(environment=environment).stdout)["services"]
    readers = {name for name, each in there.items() if CREDENTIALS in [v["target"] for v in each.get("volumes", [])]}
    servers = {"redis", "redis-1", "redis-2", "postgres"}
    assert readers == {"credentials", *servers, *PARTS}, "Grafana's is in another volume"
    for name in {*readers, "grafana"} - {"credentials", *PARTS}:
        assert there[name]["depends_on"]["credentials"]["condition"] == "service_completed_successfully"
        assert there[name]["group_add"] == [there["credentials"]["user"].partition(":")[2]]
    for name in readers - {"credentials"}:
        assert [each.get("read_only") for each in there[name]["volumes"] if each["target"] == CREDENTIALS] == [True]
    assert there["credentials"]["network_mode"] == "none"


def test_the_profile_with_a_database_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "deploy" / "compose.md").read_text().partition("## History in PostgreSQL")[2]
    [url] = re.findall(r"^echo HISTORY_URL=(\S+) >> settings.env$", page, re.MULTILINE)
    address = make_url(HistorySettings.of(load({"HISTORY_URL": url})).history_url)
    there = json.loads(compose_file.read().stdout)["services"]
    database = there[address.host or ""]
    assert database["profiles"] == ["postgres"]
    assert database["environment"]["POSTGRES_USER"] == address.username == address.database
    assert not database.get("ports")
    for part in PARTS:
        assert there[part]["environment"]["PGPASSFILE"] == f"{CREDENTIALS}/pgpass"
        assert there[part]["networks"].keys() & database["networks"].keys()


def test_make_env_writes_passwords_for_their_owner_alone_and_changes_none_that_is_there(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text("REDIS_PASSWORD=mine\n")
    for _ in range(2):
        subprocess.run(["make", "-s", "-f", ROOT / "Makefile", "env"], cwd=tmp_path, check=True, capture_output=True)
    lines = dict(line.split("=", 1) for line in env.read_text().splitlines())
    assert lines.keys() == PASSWORDS.keys()
    assert lines["REDIS_PASSWORD"] == "mine"
    assert len(lines["GRAFANA_PASSWORD"]) == 48
    assert stat.S_IMODE(env.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", ["WORKERS=3", "WORKERS=3\nREDIS_PASSWORD=", 'REDIS_PASSWORD=""\r\nWORKERS=3\r\n'])
def test_make_env_writes_lines_of_their_own_and_takes_no_empty_password_for_one(tmp_path: Path, there: str) -> None:
    env = tmp_path / ".env"
    env.write_text(there, newline="")
    said = [
        subprocess.run(
            ["make", "-s", "-f", ROOT / "Makefile", "env"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0].count("is in .env now") == said[1].count("left as it is") == 2
    lines = dict(line.split("=", 1) for line in env.read_text().splitlines())
    assert lines["WORKERS"] == "3"
    assert all(len(lines[name]) == 48 for name in PASSWORDS)


def test_no_password_is_in_the_file() -> None:
    for name in re.findall(r"^ *(\w*(?:PASSWORD|SECRET)\w*): (.*)$", compose_file.TEXT, re.MULTILINE):
        assert name[0].endswith("_FILE") or re.fullmatch(r"\$\{\w+:-\}", name[1]), name


# --- every container is confined ---


@pytest.mark.parametrize("service", ALL)
def test_every_container_is_restricted_and_restarts(service: str) -> None:
    there = services()[service]
    user, _, group = there["user"].partition(":")
    assert int(user) > 0
    assert group.isdigit()
    assert there["read_only"] is True
    assert there["cap_drop"] == ["ALL"]
    assert "cap_add" not in there
    assert there["security_opt"] == ["no-new-privileges:true"]
    assert there["init"] is True, "signals arrive and dead processes are buried"
    once = service == "credentials"
    assert there["restart"] == ("no" if once else "unless-stopped")
    limits = there["deploy"]["resources"]["limits"]
    assert 0 < float(limits["cpus"]) <= 1, "more than one would not start on a machine with one processor"
    assert int(limits["memory"]) > 0
    assert limits["pids"] > 0
    assert once or there["healthcheck"]["test"]
    assert there["logging"]["options"].keys() == {"max-size", "max-file"}
    assert once or seconds(there["stop_grace_period"]) >= 20
    mounts = [each for each in there.get("volumes", []) if each["type"] == "bind"]
    assert all(each["read_only"] for each in mounts), "the checkout stays as it is"


@pytest.mark.parametrize("service", ALL)
def test_images_are_named_with_their_version(service: str) -> None:
    image = services()[service]["image"]
    assert image == "firmq:local" or re.search(r":v?\d", image), image


def test_keys_and_users_of_the_env_file_reach_their_parts() -> None:
    key, _ = new_key("shop", [Scope.SUBMIT, Scope.READ], "100/s")
    chosen = {**PASSWORDS, "API_KEYS": key.line, "DASHBOARD_USERS": "ann:admin:x", "ALLOW_ANONYMOUS": "false"}
    done = compose_file.read(environment=chosen)
    assert done.returncode == 0, done.stderr
    told = {name: each.get("environment", {}) for name, each in json.loads(done.stdout)["services"].items()}
    gateway = load({**IMAGE, **told["gateway"]})
    assert Keyring(gateway.api_keys).all() == [key]
    assert not gateway.allow_anonymous
    assert [name for name, environment in told.items() if "API_KEYS" in environment] == ["gateway"]
    assert not Keyring(settings_of("gateway").api_keys).required, "without any, whoever is on this machine may do all"


def checkout(folder: Path, files: Mapping[str, str]) -> Path:
    """A fresh clone, as far as Compose reads it, with files of one's own beside it."""
    shutil.copy(ROOT / "docker-compose.yml", folder)
    shutil.copytree(compose_file.DEFAULTS, folder / compose_file.DEFAULTS.relative_to(ROOT))
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def told_in(folder: Path) -> dict[str, dict[str, str]]:
    """What each part is told in a checkout."""
    env = folder / ".env"
    done = compose_file.read(environment=PASSWORDS, env_file=env if env.exists() else Path("/dev/null"), folder=folder)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)["services"]
    return {part: there[part]["environment"] for part in PARTS}


CHOSEN = {
    "gateway": {
        "ALLOW_ANONYMOUS": "false",
        "API_KEYS": "a-line",
        "ALLOWED_HOSTS": "tasks.lan",
        "GATEWAY_PROCESSES": "3",
    },
    "worker": {"WORKER_EXECUTORS": "3", "EXECUTOR_MAX_MEMORY_BYTES": "1000000000", "DRAIN_GRACE": "7"},
    "housekeeper": {"MAX_COMPLETED": "5", "MAX_FAILED": "5", "MAX_CANCELLED": "5", "MAX_EXPIRED": "5"},
    "dashboard": {"ALLOW_ANONYMOUS": "false", "DASHBOARD_USERS": "ann:admin:x", "ALLOWED_HOSTS": "tasks.lan"},
}
"""Settings that Compose has defaults for."""
LINES = "".join(f"{name}={value}\n" for chosen in CHOSEN.values() for name, value in chosen.items())


def test_a_fresh_clone_has_the_defaults_of_compose(tmp_path: Path) -> None:
    told = told_in(checkout(tmp_path, {}))
    assert {part: told[part]["ALLOW_ANONYMOUS"] for part in PARTS} == dict.fromkeys(PARTS, "true")
    assert told == {part: services()[part]["environment"] for part in PARTS}


@pytest.mark.parametrize("file", [".env", "settings.env"])
def test_settings_count_in_either_file(tmp_path: Path, file: str) -> None:
    told = told_in(checkout(tmp_path, {file: LINES}))
    for part, chosen in CHOSEN.items():
        assert told[part].items() >= chosen.items(), part


def test_settings_env_comes_before_env_and_each_counts_where_the_other_is_silent(tmp_path: Path) -> None:
    env = "ALLOW_ANONYMOUS=true\nDASHBOARD_USERS=ann:admin:x\nJAEGER_UI_PORT=17000\n"
    mine = "ALLOW_ANONYMOUS=false\nAPI_KEYS=a-line\nPROMETHEUS_URL=http://prometheus.lan\n"
    told = told_in(checkout(tmp_path, {".env": env, "settings.env": mine}))
    assert {each["ALLOW_ANONYMOUS"] for each in told.values()} == {"false"}
    assert told["gateway"]["API_KEYS"] == "a-line"
    assert told["dashboard"]["DASHBOARD_USERS"] == "ann:admin:x"
    assert told["dashboard"]["PROMETHEUS_URL"] == "http://prometheus.lan"
    assert ":17000/" in told["dashboard"]["DASHBOARD_TRACE_URL"]


def test_what_one_may_choose_is_not_where_it_would_beat_settings_env() -> None:
    written = yaml.safe_load(compose_file.TEXT)["services"]
    fixed = {name: value for part in PARTS for name, value in written[part]["environment"].items()}
    variable = {name for name, value in fixed.items() if "${" in value}
    assert variable == {"REDIS_PASSWORD", "GATEWAY_PORT"}, "which are also told to others than the parts"


def test_the_revision_of_the_image_is_the_version_of_its_parts() -> None:
    assert "APP_VERSION=${REVISION}" in (ROOT / "Dockerfile").read_text().split()
    done = compose_file.read(environment={**PASSWORDS, "FIRMQ_REVISION": "a1b2c3d"})
    parts = json.loads(done.stdout)["services"]
    assert {parts[part]["build"]["args"]["REVISION"] for part in PARTS} == {"a1b2c3d"}
    assert settings_of("worker").app_version == "", "without one"


def through_env(env: Path, users: str) -> str:
    """What reaches the dashboard of users that stand like this in .env."""
    chosen = {**PASSWORDS, "DASHBOARD_USERS": users}
    env.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    done = compose_file.read(environment={}, env_file=env)
    assert done.returncode == 0, done.stderr
    told: str = json.loads(done.stdout)["services"]["dashboard"]["environment"]["DASHBOARD_USERS"]
    return told.replace("$$", "$")


def test_a_user_between_single_quotes_in_the_env_file_reaches_the_dashboard(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "firmq", "user", "ann", "admin"]
    made = subprocess.run(command, cwd=ROOT, input="correct horse\n", capture_output=True, text=True, check=True)
    line = made.stdout.strip()
    assert "put the line in single quotes, DASHBOARD_USERS='…'" in made.stderr
    told = through_env(tmp_path / ".env", f"'{line}'")
    assert told == line
    assert Users([told]).check("ann", "correct horse")
    assert "DASHBOARD_USERS='ann:admin:scrypt:" in README


@pytest.mark.parametrize("salt", ["IjRYdDJiA6DPW4ol", "9jRYdDJiA6DPW4ol"])
def test_a_user_without_quotes_is_told_to_be_quoted(tmp_path: Path, salt: str) -> None:
    told = through_env(tmp_path / ".env", f"ann:admin:scrypt:32768:8:1${salt}$" + "ab01" * 32)
    assert "ab01" not in told, "Compose took it for a variable"
    with pytest.raises(SettingsError, match=r"'ann': the \$ signs of its hash were expanded.*in single quotes"):
        Users([told])


def test_commands_that_the_dashboard_shows_name_the_port_that_is_published() -> None:
    assert settings_of("dashboard").gateway_port == PUBLISHED["gateway"]
    done = compose_file.read(environment={**PASSWORDS, "GATEWAY_PORT": "8123"})
    there = json.loads(done.stdout)["services"]
    assert there["dashboard"]["environment"]["GATEWAY_PORT"] == there["gateway"]["ports"][0]["published"] == "8123"


def test_only_what_people_use_is_published_and_on_loopback_alone() -> None:
    published = {
        name: int(port["published"])
        for name, service in services().items()
        for port in service.get("ports", [])
        if port["host_ip"] == "127.0.0.1"
    }
    assert published == PUBLISHED
    assert sum(len(service.get("ports", [])) for service in services().values()) == len(PUBLISHED)


def test_redis_is_reached_by_the_parts_alone() -> None:
    servers = {"redis", "redis-1", "redis-2"}
    assert {name for name, service in services().items() if "store" in service.get("networks", ())} == {
        *servers,
        *PARTS,
    }
    for name in servers:
        assert services()[name]["networks"].keys() == {"store"}
    assert yaml.safe_load(compose_file.TEXT)["networks"]["store"]["internal"] is True


def test_redis_keeps_everything_on_a_volume() -> None:
    redis = services()["redis"]
    text = " ".join(redis["command"])
    assert "--appendonly yes" in text
    assert "--maxmemory-policy noeviction" in text
    assert "--requirepass" not in text, "the password would be in the list of processes"
    assert ("volume", "/data") in [(each["type"], each["target"]) for each in redis["volumes"]]


# --- it agrees with the rest ---


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_started_by_its_command_after_redis_is_well(part: str) -> None:
    assert services()[part]["command"] == ["firmq", part]
    assert part in COMMANDS
    assert services()[part]["depends_on"]["redis"]["condition"] == "service_healthy"


@pytest.mark.parametrize("part", PARTS)
def test_what_is_set_for_a_part_are_settings_and_good_ones(part: str) -> None:
    environment = services()[part]["environment"]
    assert {name.lower() for name in environment} <= Settings.model_fields.keys() | {
        "redis_password_file",
        "pgpassfile",
    }
    settings = settings_of(part)
    assert settings.bind_host == "0.0.0.0"
    assert settings.allow_anonymous
    assert settings.redis_host == "redis"
    assert settings.jaeger_host == "jaeger"
    assert settings.prometheus_url == "http://prometheus:9090"


@pytest.mark.parametrize("part", PARTS)
def test_a_part_listens_where_it_is_checked_published_and_exposed(part: str) -> None:
    port = port_of(part)
    assert services()[part]["healthcheck"]["test"][-2:] == ["firmq.shared.http.healthcheck", str(port)]
    assert [each["target"] for each in services()[part].get("ports", [])] in ([], [port])
    exposed = re.findall(r"^EXPOSE (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert str(port) in exposed[0].split()


def test_the_gateway_shows_the_metrics_of_workers_and_housekeepers() -> None:
    others = {"worker", "housekeeper"}
    assert set(settings_of("gateway").metrics_sources) == {f"{part}:{port_of(part)}" for part in others}
    assert all(services()[part]["networks"].keys() & services()["gateway"]["networks"].keys() for part in others)


def test_a_container_has_longer_to_stop_than_its_part_takes_to_drain() -> None:
    def margin(part: str, drain: float) -> float:
        return seconds(services()[part]["stop_grace_period"]) - drain

    assert margin("worker", settings_of("worker").drain_grace) >= 10
    assert margin("gateway", gateway_server.DRAIN_SECONDS) >= 10
    assert margin("dashboard", dashboard_server.DRAIN_SECONDS) >= 10


def test_a_workers_executors_fit_into_its_memory_together() -> None:
    settings = settings_of("worker")
    limit = int(services()["worker"]["deploy"]["resources"]["limits"]["memory"])
    assert settings.executors * settings.executor_max_memory_bytes < limit


def test_what_is_kept_of_ended_tasks_fits_into_half_of_redis() -> None:
    settings = settings_of("housekeeper")
    kept = settings.max_completed + settings.max_failed + settings.max_cancelled + settings.max_expired
    redis = services()["redis"]
    may_store = int(redis["environment"]["MAXMEMORY"].removesuffix("mb")) << 20
    assert kept * 2100 <= may_store / 2, "README.md has what a task takes"
    assert may_store * 1.5 <= int(redis["deploy"]["resources"]["limits"]["memory"])


def test_two_housekeepers_share_the_work_under_locks() -> None:
    assert services()["housekeeper"]["deploy"]["replicas"] == 2
    assert settings_of("housekeeper").housekeeper_distributed_execution_enabled


def test_prometheus_scrapes_the_parts_where_they_listen() -> None:
    jobs = yaml.safe_load((ROOT / "prometheus.yml").read_text())["scrape_configs"]
    scraped = {
        name: found["port"]
        for job in jobs
        for found in job.get("dns_sd_configs", [])
        for name in found["names"]
        if name in PARTS
    }
    assert scraped == {part: port_of(part) for part in PARTS}, "by name, so that every container of a service is found"


# --- it agrees with the README ---


def test_the_readme_names_every_address() -> None:
    for service, port in PUBLISHED.items():
        assert f"http://localhost:{port}" in README, service


def test_the_readme_explains_every_variable_of_the_file() -> None:
    unexplained = {name for name in compose_file.VARIABLES if f"`{name}`" not in README}
    assert not unexplained


def test_commands_of_the_readme_use_targets_and_services_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    blocks = "\n".join(README.split("```")[1::2])
    used = set(re.findall(r"^(?:\$ )?make ([a-z-]+)", blocks, re.MULTILINE))
    assert used
    assert used <= targets
    scaled = re.findall(r"--scale (\w+)=", README)
    assert scaled
    named = re.findall(r"docker compose (?:logs|exec|restart|stop|start)(?: -\w+)* (\w+)", README)
    assert {*scaled, *named} <= services().keys()
