"""Authenticators tell everything apart that an attempt is named by."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.authenticators import AUTHENTICATOR_BYTES, Secret
from mycel.core.identifiers import BOOT_MAX, COUNTER_MAX, fenced

from .keys import SECRET, proof

VECTOR = "78822c97a3980174563d0cd4c4d5d648"
JOB = "01m7pxr62fmpzbhh9mpd48h1hh"


def test_no_two_attempts_share_one() -> None:
    """Also at the ends of a page, of a boot's counter and of the boots."""
    counters = (1, 2, 1 << 20, (1 << 20) + 1, COUNTER_MAX)
    indices = (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 30)
    attempts = [fenced(boot, counter) for boot in (1, 2, BOOT_MAX) for counter in counters]
    made = {
        proof(attempt, job, job_id, index, holder, owner_epoch=epoch)
        for attempt, job, job_id, index, holder, epoch in product(
            attempts, (7, 8), (JOB, JOB[::-1]), indices, ("one", "other"), (1, 2)
        )
    }
    assert len(made) == len(attempts) * 2 * 2 * len(indices) * 2 * 2
    assert {len(one) for one in made} == {AUTHENTICATOR_BYTES}


def test_another_secret_makes_others() -> None:
    other = Secret(bytes([SECRET[0] ^ 1, *SECRET[1:]]))
    attempt = fenced(1, 1)
    assert proof(attempt, 7, JOB, 0, "one") != proof(attempt, 7, JOB, 0, "one", secret=other)


def test_the_next_version_makes_the_same() -> None:
    """A secret stays with its journal over upgrades, and so does what workers have kept."""
    assert proof(fenced(3, 12345), (3 << 40) + 1, JOB, 42, "peer").hex() == VECTOR


@given(st.integers(1, COUNTER_MAX), st.integers(0, 1 << 40))
def test_every_place_can_be_read(counter: int, index: int) -> None:
    assert len(proof(fenced(BOOT_MAX, counter), 1, JOB, index, "one")) == AUTHENTICATOR_BYTES
