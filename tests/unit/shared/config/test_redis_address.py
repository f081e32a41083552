"""Addresses of Redis: what may be written, and what a client makes of it."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from firmq.shared.config.redis_address import read_address, without_password
from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError
from firmq.shared.redis.client import connect, keys_of
from firmq.shared.redis.keys import with_prefix
from firmq.shared.submission.queue import settings_for
from tests.support.features import rows


def test_sentinels_are_named_with_and_without_their_port() -> None:
    address = read_address("redis+sentinel://ann:s%40cret@one:26380,two,[::1]:26379/main/2")
    assert address.sentinels == (("one", 26380), ("two", 26379), ("::1", 26379))
    assert address.service == "main"
    assert address.url == "redis://ann:s%40cret@sentinel/2"


def test_without_a_database_it_is_the_first() -> None:
    assert read_address("rediss+sentinel://one/main").url == "rediss://sentinel/0"


def test_what_concerns_the_sentinels_is_kept_apart() -> None:
    address = read_address("redis+sentinel://one/main?sentinel_password=a&ssl_ca_certs=b")
    assert address.sentinel_password == "a"
    assert address.url == "redis://sentinel/0?ssl_ca_certs=b"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://127.0.0.1:6379", "must start with redis://"),
        ("redis+sentinel://one,two", r"must look like redis\+sentinel://"),
        ("redis+sentinel:///main", "must look like"),
        ("redis+sentinel://one/main/first", "must look like"),
        ("redis+sentinel://one:many/main", "has an invalid port"),
        ("redis+sentinel://one,,two/main", "without a host"),
        ("redis://one:many/0", "has an invalid port"),
        ("redis://one/0?key_prefix=a+b", "key_prefix must be at most 64"),
        ("redis://one/first", "must end with the number of a database"),
        ("redis://one/0#shop", "has a # or an unknown option"),
        ("redis://one/0?databse=1", "has a # or an unknown option"),
    ],
)
def test_an_unreadable_address_is_refused_with_the_reason(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_address(url)
    with pytest.raises(SettingsError, match=rf"REDIS_URL: .*{complaint}"):
        load({"REDIS_URL": url})


@pytest.mark.parametrize("option", ["client_name=shop", "max_connections=50", "socket_timeout=2", "timeout=1", "db=2"])
def test_options_of_the_driver_are_kept(option: str) -> None:
    assert read_address(f"redis://one/0?{option}").url.endswith(option)


def test_a_mistake_in_the_address_does_not_show_its_password() -> None:
    with pytest.raises(SettingsError) as mistakes:
        load({"REDIS_URL": "redis+sentinel://:hunter2@one"})
    assert "hunter2" not in str(mistakes.value)


SPECIAL = [*"#/?@[]%: \\&=+;'\"{}|^", "\u2100"]
"""Characters that end a part of a URL, or that change one into another; the last one is a/c for Unicode."""
WITH_A_PASSWORD = {
    "REDIS_URL": [
        "redis://:{}@one:6379/0",
        "rediss://user:{}@one",
        "redis://{}@one",
        "redis+sentinel://:{}@one:26379,two/main",
        "redis+cluster://:{}@one:6379?partitions=3",
        "unix://:{}@/run/redis.sock",
        "redis://one/0?password={}",
    ],
    "REDIS_HOST": ["redis://:{}@one:6379/0", "user:{}@one"],
    "REDIS_PORT": ["redis://:{}@one:6379/0"],
    "SMTP_URL": ["smtp://user:{}@one:587"],
    "ALERT_WEBHOOK_URL": ["https://user:{}@one/hook"],
    "HISTORY_URL": ["postgresql+psycopg://user:{}@one:5432/history"],
    "OUTBOX_DATABASE": ["mysql://user:{}@one/shop"],
    "PAYLOAD_STORE": ["s3://key:{}@bucket"],
    "PROMETHEUS_URL": ["http://user:{}@one:9090"],
    "METRICS_SOURCES": ["http://user:{}@one:9100/metrics"],
    "JAEGER_HOST": ["user:{}@one"],
    "DASHBOARD_USERS": ["{}"],
    "SCHEDULES": ["{{{}"],
    **dict(rows("WITH_A_PASSWORD")),
}


@pytest.mark.parametrize("special", SPECIAL)
def test_no_message_and_no_traceback_quotes_a_part_of_a_password(special: str) -> None:
    for password in (f"Wd7kPq2{special}Zx9Q", f"12{special}a=Zx9Q"):
        for name, addresses in WITH_A_PASSWORD.items():
            for address in addresses:
                _check_that_nothing_is_quoted(name, address.format(password))


def _check_that_nothing_is_quoted(name: str, value: str) -> None:
    try:
        settings = load({name: value})
        for each in settings.stores.values():
            connect(each.store_url).close()
        if name == "REDIS_URL":
            settings_for(value, {})
    except (SettingsError, ValueError) as error:
        said = "".join(traceback.format_exception(error)).lower()
        assert "wd7kpq2" not in said, value
        assert "zx9q" not in said, value


def test_a_password_that_would_end_the_address_is_never_taken_for_a_port() -> None:
    for address in ("redis://:12#x@one/0", "redis://:12/x@one/0", "redis://:12?x@one/0", "redis+sentinel://:1#2@one/a"):
        with pytest.raises(SettingsError, match="write %23 for #"):
            load({"REDIS_URL": address})


def test_a_password_is_used_with_every_kind_of_address() -> None:
    for address, used in {
        "unix:///run/redis.sock?db=1": "unix://:a%2Fb@/run/redis.sock?db=1",
        "redis://gateway@store/1": "redis://gateway:a%2Fb@store/1",
        "rediss://[::1]:6380/0": "rediss://:a%2Fb@[::1]:6380/0",
    }.items():
        assert load({"REDIS_URL": address, "REDIS_PASSWORD": "a/b\n"}).store_url == used


@pytest.mark.parametrize(
    ("host", "shown"), [("::1", "[::1]"), ("[fe80::1]", "[fe80::1]"), ("store.local", "store.local")]
)
def test_the_address_of_a_host_has_brackets_where_it_needs_them(host: str, shown: str) -> None:
    assert load({"REDIS_HOST": host}).store_url == f"redis://{shown}:6379/0"
    assert load({"JAEGER_HOST": host}).jaeger_host == host


@pytest.mark.parametrize("host", ["store:6380", "redis://store", "a b", "store/0", "[store]"])
def test_what_is_more_than_a_host_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_HOST: must be a host name or an IP address alone"):
        load({"REDIS_HOST": host})


def test_password_and_user_are_added_to_an_address_without_them() -> None:
    env = {"REDIS_URL": "redis://store/1", "REDIS_USERNAME": "gateway", "REDIS_PASSWORD": "a/b"}
    assert load(env).store_url == "redis://gateway:a%2Fb@store/1"
    env["REDIS_URL"] = "redis://:own@store/1"
    assert load(env).store_url == "redis://:own@store/1"


def test_files_for_tls_become_part_of_the_address_once(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    once = load({"REDIS_URL": "rediss://store/0", "REDIS_CA_FILE": str(file)}).store_url
    assert once.startswith("rediss://store/0?ssl_ca_certs=")
    assert load({"REDIS_URL": once, "REDIS_CA_FILE": str(file)}).store_url == once
    assert load({"REDIS_URL": "redis://store/0", "REDIS_CA_FILE": str(file)}).store_url == "redis://store/0"


def test_a_file_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match="REDIS_CA_FILE: the file does not exist"):
        load({"REDIS_CA_FILE": "/nowhere/ca.pem"})


def test_the_password_of_the_sentinels_goes_to_them_only() -> None:
    url = load({"REDIS_URL": "redis+sentinel://one/main", "REDIS_SENTINEL_PASSWORD": "theirs"}).store_url
    assert read_address(url).sentinel_password == "theirs"
    assert "theirs" not in read_address(url).url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("rediss://user:se%40cret@host/1?password=secret", "rediss://host/1"),
        ("redis://host", "redis://host"),
        ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ("redis://:secret@host/0?a=secret&key_prefix=%7Bshop%7D:eu", "redis://host/0?key_prefix={shop}:eu"),
    ],
)
def test_password_is_left_out_of_what_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize("prefix", ["shop", "shop:eu", "a" * 64, "{shop}", "shop-1.eu_b", "rqs:my-firmq"])
def test_the_prefix_of_keys_becomes_part_of_the_address(prefix: str) -> None:
    for url in ("redis://one/0", "rediss://one/0", "unix:///run/redis.sock", "redis+sentinel://one/main"):
        with connect(load({"REDIS_URL": url, "KEY_PREFIX": prefix}).store_url) as redis:
            assert keys_of(redis).rq_job("1") == f"{prefix}:rq:job:1"
            assert f"{prefix}:firmq:tasks" == keys_of(redis).TASKS
            assert keys_of(redis) is with_prefix(prefix)


def test_without_a_prefix_keys_begin_as_rqs_do() -> None:
    with connect(load({}).store_url) as redis:
        assert keys_of(redis).rq_job("1") == "rq:job:1"


def test_the_prefix_of_an_address_has_precedence_like_its_password() -> None:
    url = load({"REDIS_URL": "redis://one/0?key_prefix=own", "KEY_PREFIX": "shop"}).store_url
    assert without_password(url) == "redis://one/0?key_prefix=own"


@pytest.mark.parametrize(
    "prefix", ["a b", "shop:", ":shop", "a::b", "a*", "a[b]", "a'b", "a\\b", "a" * 65, "é", "a\nb"]
)
def test_a_prefix_with_other_characters_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"KEY_PREFIX: must be at most 64 letters, digits"):
        load({"KEY_PREFIX": prefix})


@pytest.mark.parametrize("prefix", ["rq", "firmq", "shop:rq", "firmq:eu"])
def test_a_prefix_that_would_make_keys_of_another_system_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"KEY_PREFIX: must not have the part '(rq|firmq)'"):
        load({"KEY_PREFIX": prefix})
