"""What queueing theory says, for comparison with simulated means."""

from __future__ import annotations

import numpy


def erlang_c(servers: int, load: float) -> float:
    """The probability that an arrival has to wait, in M/M/k at this load of each server."""
    offered = servers * load
    blocked = 1.0
    for count in range(1, servers + 1):  # Erlang B, without large powers
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def mean_wait(servers: int, load: float) -> float:
    """Of M/M/k, in units of the mean service time."""
    return erlang_c(servers, load) / (servers * (1 - load))


def supermarket(load: float, d: int) -> float:
    """Mean time in the system under power of d with many servers (Mitzenmacher, Vvedenskaya)."""
    total, exponent, power = 0.0, 0, 1
    while (term := load**exponent) > 1e-15:
        total += term
        power *= d
        exponent += power
    return total


def gossip_rounds(nodes: int, fan_out: int, seed: int) -> int:
    """Rounds of push-pull until all know a rumour that one node starts with.

    Each round every node talks with `fan_out` random others; both learn what either knew."""
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    knows = numpy.zeros(nodes, numpy.bool_)
    knows[0] = True
    everyone = numpy.arange(nodes)
    rounds = 0
    while not knows.all():
        rounds += 1
        before = knows.copy()
        for _ in range(fan_out):
            partners = (everyone + random.integers(1, nodes, nodes)) % nodes
            knows |= before[partners]
            knows[partners[before]] = True
    return rounds
