"""Where webhooks may go: every way of writing an address inside is refused, also when a name stands for it."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from ipaddress import ip_address

import pytest

from firmq.shared.domain.egress_policy import EgressPolicy, NotAllowed, is_public
from firmq.worker.handlers.pinned_http import CallFailed, Connection, addresses_of, in_thread

URLS = (
    # loopback and unspecified, in every spelling
    "http://127.0.0.1/",
    "https://127.0.0.1/hook",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0X7F.1/",
    "http://127.0.0.1./",
    "http://127.0.0.1.:8080/",
    "http://0/",
    "http://0.0.0.0/",
    "http://00000000/",
    "http://%31%32%37.0.0.1/",
    "http://①②⑦.0.0.1/",
    "http://127。0。0。1/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    # IPv4 inside of IPv6
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::10.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    # private, link-local, metadata, shared by carriers
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://3232235777/",
    "http://0xa9fea9fe/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/",
    "http://2852039166/",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://100.64.0.1/",
    "http://[fd00:ec2::254]/",
    "http://[fc00::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    # multicast, broadcast, documentation, benchmarks, reserved
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://192.0.2.1/",
    "http://198.51.100.7/",
    "http://203.0.113.9/",
    "http://198.18.0.1/",
    "http://192.0.0.8/",
    "http://192.88.99.1/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[5f00::1]/",
    # names of the network inside
    "http://localhost/",
    "http://LOCALHOST:8080/",
    "http://localhost./",
    "http://a.localhost/",
    "http://metadata.google.internal/",
    "http://printer.local/",
    # what readers of URLs disagree about
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://example.com@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://127.0.0.1#@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\.example.com/",
    "http://exam\tple.com/",
    "http://example.com/\r\nX-Header: 1",
    " http://example.com/",
    "http://example.com /",
    "http:///hook",
    "http://",
    "//example.com/",
    "http:example.com",
    "http://[127.0.0.1]/",
    "http://[::1",
    "http://exa_mple..com/",
    "http://999.1.1.1/",
    "http://1.2.3.4.5/",
    "http://example.0x7f/",
    # other schemes and ports
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "http://example.com:22/",
    "http://example.com:6379/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:8o/",
    "https://example.com/" + "a" * 2000,
)

RESOLVED = (
    "127.0.0.1", "0.0.0.0", "10.1.2.3", "172.20.0.1", "192.168.0.1", "169.254.169.254", "100.64.1.1", "224.0.0.251",
    "192.0.2.5", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::8.8.8.8",
    "2002:808:808::1", "2001::1", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1", "2001:db8::1",
)  # fmt: skip


@pytest.mark.parametrize("url", URLS, ids=lambda url: url[:60].encode("unicode_escape").decode())
def test_an_internal_address_is_refused_in_every_notation(url: str) -> None:
    with pytest.raises(NotAllowed):
        addresses_of(EgressPolicy().read(url), EgressPolicy(), lambda host, port: ["93.184.215.14"])


def test_the_table_has_more_than_forty_forms() -> None:
    assert len(set(URLS)) >= 40


@pytest.mark.parametrize("address", RESOLVED)
def test_a_name_of_an_internal_address_is_refused(address: str) -> None:
    target = EgressPolicy().read("https://hooks.example.com/")
    with pytest.raises(NotAllowed):
        addresses_of(target, EgressPolicy(), lambda host, port: [address])
    with pytest.raises(NotAllowed):
        addresses_of(target, EgressPolicy(), lambda host, port: ["93.184.215.14", address])


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/hook?x=1",
        "http://example.com:8080/",
        "https://EXAMPLE.com.:8443/",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]/",
        "https://xn--bcher-kva.example/",
    ],
)
def test_the_public_internet_is_allowed(url: str) -> None:
    target = EgressPolicy().read(url)
    address = target.host if target.host[0].isdigit() else "93.184.215.14"
    assert addresses_of(target, EgressPolicy(), lambda host, port: [address]) == [address]


def test_the_checked_address_is_the_one_called() -> None:
    answers = iter([["93.184.215.14"], ["127.0.0.1"]])
    target = EgressPolicy().read("https://rebinding.example/")
    assert addresses_of(target, EgressPolicy(), lambda host, port: next(answers)) == ["93.184.215.14"]
    assert next(answers) == ["127.0.0.1"], "a second question would have had another answer"


def test_what_the_settings_allow_is_allowed_and_nothing_beside_it() -> None:
    egress_policy = EgressPolicy.of((), (443,), ("127.0.0.0/8", "fd00::/8", "receiver"))
    for url in ("http://127.0.0.1:9999/", "http://[fd00::1]:1234/", "http://receiver:5000/hook"):
        addresses_of(
            egress_policy.read(url), egress_policy, lambda host, port: ["10.0.0.9" if host == "receiver" else host]
        )
    for url in ("http://10.0.0.9/", "http://[::1]/", "http://localhost/", "http://[::ffff:127.0.0.1]/"):
        with pytest.raises(NotAllowed):
            egress_policy.read(url)


def test_only_named_hosts_are_called_once_some_are_named() -> None:
    egress_policy = EgressPolicy.of(("hooks.example.com", "*.partner.example"), (443,), ())
    for host in ("hooks.example.com", "a.partner.example", "b.c.partner.example"):
        egress_policy.read(f"https://{host}/")
    for host in ("example.com", "partner.example", "evilpartner.example", "hooks.example.com.evil.example"):
        with pytest.raises(NotAllowed):
            egress_policy.read(f"https://{host}/")


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "1.2.3", "a b", "10.0.0.1/8", "0x7f.1"])
def test_a_mistake_in_the_settings_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="neither a host nor a network"):
        EgressPolicy.of((), (), (entry,))


def test_public_is_what_the_internet_routes() -> None:
    assert all(is_public(ip_address(each)) for each in ("1.1.1.1", "8.8.8.8", "2001:4860:4860::8888", "172.32.0.1"))


def test_a_name_that_is_not_found_in_time_is_given_up() -> None:
    over = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        over.wait(60)
        return ["127.0.0.1"]

    connection = Connection(EgressPolicy(), slow)
    sending = partial(connection.send, "http://slow.example/", "POST", b"", {})
    began = time.monotonic()
    with pytest.raises(CallFailed, match=r"took longer than 0\.2 s"):
        asyncio.run(in_thread(connection, sending, within=0.2))
    assert time.monotonic() - began < 30
    over.set()
