"""Which addresses builds may connect to."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from mycel.config.build_addresses import Allowance, BadAllowance, parse_allowance
from mycel.drivers.environments.public_addresses import allowance_of, refusal

CLOSED = [
    *("127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.9.9"),
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192"),
    *("168.63.129.16", "198.18.0.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254"),
    *("ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001::1", "2001:20::1", "5f00::1"),
    "100::1",
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "151.101.0.223", "172.32.0.1", "100.128.0.1", "11.0.0.1"),
    *("2606:4700::1111", "2a04:4e42::223", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"),
]


@pytest.mark.parametrize("text", CLOSED)
def test_what_is_not_public_is_refused_unless_it_is_allowed(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert refusal("some.host", address, 443, ())
    assert not refusal("some.host", address, 443, (Allowance(host="some.host"),))
    assert refusal("some.host", address, 443, (Allowance(host="some.host", port=80),))


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_is_allowed_at_the_ports_of_the_web(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not refusal("some.host", address, 443, ())
    assert not refusal("some.host", address, 8080, ())
    assert "port 25" in refusal("some.host", address, 25, ())


def test_an_address_of_this_machine_is_not_public(monkeypatch: pytest.MonkeyPatch) -> None:
    address = ipaddress.ip_address("8.8.4.4")
    assert not refusal("some.host", address, 443, ())
    monkeypatch.setattr(socket.socket, "connect", lambda *_: None)
    monkeypatch.setattr(socket.socket, "getsockname", lambda _: ("8.8.4.4", 5))
    assert "this machine" in refusal("some.host", address, 443, ())


@pytest.mark.parametrize(
    ("text", "fits", "fits_not"),
    [
        ("10.0.0.0/8", ("h", "10.1.2.3", 5), ("h", "11.0.0.1", 5)),
        ("10.1.2.3", ("h", "10.1.2.3", 443), ("h", "10.1.2.4", 443)),
        ("10.1.2.3:3141", ("h", "10.1.2.3", 3141), ("h", "10.1.2.3", 80)),
        ("[fd00::1]:80", ("h", "fd00::1", 80), ("h", "fd00::1", 81)),
        ("fd00::/16", ("h", "fd00::1", 80), ("h", "fd01::1", 80)),
        (
            "Index.Example.org",
            ("index.example.ORG.", "10.0.0.1", 9),
            ("example.org", "10.0.0.1", 9),
        ),
        ("index.example.org:9", ("index.example.org", "::1", 9), ("index.example.org", "::1", 8)),
    ],
)
def test_what_an_owner_can_allow(
    text: str, fits: tuple[str, str, int], fits_not: tuple[str, str, int]
) -> None:
    allowance = parse_allowance(text)
    for (host, address, port), expected in ((fits, True), (fits_not, False)):
        assert allowance.fits(host, ipaddress.ip_address(address), port) is expected


@pytest.mark.parametrize("text", ["", "a b", "10.0.0.0/8/9", "host:0", "host:99999", "[::1]80"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadAllowance):
        parse_allowance(text)


def test_an_owners_index_is_allowed_at_its_port() -> None:
    assert allowance_of("https://u:p@Index.internal/simple") == Allowance(
        host="index.internal", port=443
    )
    assert allowance_of("http://10.0.0.1:3141/x") == Allowance(host="10.0.0.1", port=3141)
    assert allowance_of("/srv/wheels") is None
