"""Where a node listens, by its settings."""

from __future__ import annotations

import pytest

from mycel.config import load
from mycel.membership.protocols import listen_addresses

TCP, QUIC = "/ip4/127.0.0.1/tcp/4001", "/ip4/127.0.0.1/udp/4001/quic-v1"
OTHER = "/ip4/127.0.0.1/udp/4002/quic-v1"


@pytest.mark.parametrize(
    ("quic", "asked"),
    [(True, [TCP, OTHER]), (False, [TCP, QUIC, OTHER])],
)
def test_quic_that_comes_by_itself_is_not_asked_for_twice(quic: bool, asked: list[str]) -> None:
    settings = {"swarm.listen": [TCP, QUIC, OTHER], "swarm.quic": quic}
    assert listen_addresses(load(None, {}, settings)) == asked
