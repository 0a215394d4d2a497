"""Addresses that were typed, rightly and wrongly."""

from __future__ import annotations

import pytest

from mycel.swarm.multiaddress import objection

PEER = "12D3KooWL4Kx6Qn3n4zdAgSPvH3zgJhzGXegscK9VnveXeDYmHU1"


@pytest.mark.parametrize(
    "good",
    [
        "/ip4/0.0.0.0/tcp/0",
        f"/ip4/10.0.0.1/tcp/4001/p2p/{PEER}",
        f"/ip6/::1/udp/4001/quic-v1/p2p/{PEER}",
        f"/dns4/gate.example.org/tcp/65535/p2p/{PEER}",
        f"/ip4/10.0.0.1/tcp/4001/p2p/{PEER}/p2p-circuit/p2p/{PEER}",
    ],
)
def test_what_the_network_has(good: str) -> None:
    assert objection(good) == ""


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("", "not like"),
        ("10.0.0.1:4001", "not like"),
        ("/ip4", "not like"),
        ("/foo/bar", "no 'foo'"),
        ("/ip4/10.0.0.1/tpc/4001", "no 'tpc'"),
        ("/ip4/300.0.0.1/tcp/4001", "'300.0.0.1' cannot follow 'ip4'"),
        ("/ip4/::1/tcp/4001", "'::1' cannot follow 'ip4'"),
        ("/ip6/fe80::1%eth0/tcp/4001", "'fe80::1%eth0' cannot follow 'ip6'"),
        ("/ip4/10.0.0.1/tcp/70000", "'70000' cannot follow 'tcp'"),
        ("/ip4/10.0.0.1/tcp/", "'' cannot follow 'tcp'"),
        ("/ip4/10.0.0.1/tcp/٤", "cannot follow 'tcp'"),
        (f"/ip4/10.0.0.1/tcp/4001/p2p/{PEER[:-1]}", "cannot follow 'p2p'"),
        (f"/ip4/10.0.0.1/tcp/4001/p2p/{PEER} ", "cannot follow 'p2p'"),
    ],
)
def test_what_is_mistyped_is_named(bad: str, told: str) -> None:
    assert told in objection(bad)
