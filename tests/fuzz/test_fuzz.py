"""The attacks of `run.py` in little, and two that need nothing but numbers."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from random import Random

import pytest

from .flood import CUT_WITHIN_SECONDS, RATIO_MAX, Pieces, compare, flooding, until_clear
from .run import Sizes, run
from .siege import READ_MILLISECONDS, Siege

HALF_OPEN = 400


async def test_nothing_false_is_taken_and_everything_good_is(program: Path) -> None:
    lines: list[str] = []
    verdict = await run(Sizes(frames=60, records=120, tokens=60), 7, lines.append)
    assert not verdict.complaints, "\n".join([*verdict.complaints, *lines])


async def test_half_open_connections_from_one_address_keep_no_member_out(besieged: Siege) -> None:
    host, port = "127.0.0.1", int(besieged.address.split("/")[4])
    with contextlib.ExitStack() as held:
        for _ in range(HALF_OPEN):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.66", 0))
            one.connect((host, port))
        began = time.monotonic()
        assert await besieged.is_admitted()
        assert time.monotonic() - began < READ_MILLISECONDS / 1000


async def test_a_flooding_member_is_cut_off_and_the_others_do_not_feel_it(
    besieged: Siege, program: Path
) -> None:
    """The soak goes on until the others' p99 is surely less than twice the quiet one; here, on a
    machine with more to do, it must not be surely more."""
    lines: list[str] = []
    async with flooding(besieged, program) as flood:
        bounds = await until_clear(flood, 2, lines.append)
    assert max(flood.measured.cut_seconds) < CUT_WITHIN_SECONDS
    assert not bounds.is_felt, lines[-1]


def windows(random: Random, usual_ms: float, slow_share: float, slow_ms: float) -> Pieces:
    """As many requests as two rounds have, some of them slow."""
    return [
        [
            random.expovariate(1 / usual_ms) + slow_ms * (random.random() < slow_share)
            for _ in range(150)
        ]
        for _ in range(16)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_comparison_says_what_it_can_be_sure_of(seed: int) -> None:
    random = Random(seed)
    quiet = windows(random, 1.0, 0.002, 20.0)
    assert compare(quiet, windows(random, 1.0, 0.002, 20.0), random).high < RATIO_MAX
    assert compare(quiet, windows(random, 1.0, 0.05, 30.0), random).is_felt
    assert compare(quiet, windows(random, 4.0, 0.0, 0.0), random).is_felt
    rare = compare(quiet, windows(random, 1.0, 0.01, 20.0), random)
    assert not rare.is_clear, "it could be either"
