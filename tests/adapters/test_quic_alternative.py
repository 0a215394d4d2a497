"""TCP and QUIC at one place."""

from __future__ import annotations

import pytest

from mycel.swarm.quic_alternative import is_quic, port_of, quic_twin, without_twins

TCP = "/ip4/10.0.0.5/tcp/4001"
QUIC = "/ip4/10.0.0.5/udp/4001/quic-v1"
GATEWAY = "/p2p/gateway/p2p-circuit/p2p/worker"


@pytest.mark.parametrize("behind", ["", "/p2p/worker", GATEWAY])
def test_both_lead_to_one_place(behind: str) -> None:
    assert quic_twin(TCP + behind) == QUIC + behind
    assert without_twins([QUIC + behind, TCP + behind]) == [TCP + behind]
    assert (is_quic(TCP + behind), is_quic(QUIC + behind)) == (False, True)


def test_what_is_no_twin_stays() -> None:
    others = [TCP, QUIC.replace("4001", "4002"), "/ip6/::1/udp/4001/quic-v1", "/memory/one"]
    assert without_twins(others) == others
    assert quic_twin("/dns4/example.org/tcp/4001") is None
    assert quic_twin(QUIC) is None


def test_a_port_that_was_chosen_is_taken_over() -> None:
    assert port_of("/ip4/10.0.0.5/tcp/4001/p2p/worker") == 4001
    assert port_of(QUIC) is None
    assert quic_twin("/ip4/0.0.0.0/tcp/0", 4001) == "/ip4/0.0.0.0/udp/4001/quic-v1"
