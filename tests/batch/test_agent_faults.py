"""An agent that dies, an origin that falls silent, a batch system that loses and forgets: nothing
runs twice, nothing is lost, and faults of ours are caught."""

from __future__ import annotations

import os

import msgspec
import pytest

from mycel.core.agent.attempts import NEXT, Attempt, AttemptState, Step

from .agent_world import Bugs, World

SEEDS = int(os.environ.get("MYCEL_AGENT_SEEDS", "300"))
CHUNK = 50
SEEDS_PER_BUG = 1500


def complaints_of(seed: int, bugs: Bugs | None = None) -> list[str]:
    world = World(seed, bugs)
    world.run()
    return world.complaints


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_promises_hold_under_faults(first: int) -> None:
    for seed in range(first, first + CHUNK):
        found = complaints_of(seed)
        assert not found, f"World({seed})\n" + "\n".join(found)


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(Bugs)])
def test_a_fault_of_ours_is_caught(name: str) -> None:
    bugs = Bugs(**{name: True})
    assert any(complaints_of(seed, bugs) for seed in range(SEEDS_PER_BUG))


def test_every_step_of_the_table_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[AttemptState, Step]] = set()
    take = Attempt.take

    def noting(self: Attempt, step: Step, now: float) -> None:
        taken.add((self.state, step))
        take(self, step, now)

    monkeypatch.setattr(Attempt, "take", noting)
    for seed in range(SEEDS_PER_BUG):
        World(seed).run()
        if taken == set(NEXT):
            return
    raise AssertionError(f"never taken: {set(NEXT) - taken}")
