"""The typed messages of `typed.py` in little, and the ones that once ended a scheduler."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from mycel.swarm import message_codec

from .typed import TARGETS, attack
from .typed_scheduler import SchedulerTarget
from .typed_values import raw

MESSAGES = 3_000


@pytest.mark.parametrize("name", TARGETS)
def test_no_message_ends_or_hangs_a_node(name: str) -> None:
    count = round(MESSAGES * TARGETS[name][1])
    tally = attack(name, max(600, count), 7)
    assert not tally.faults, tally.faults[0]
    assert tally.probes
    assert 0.5 * tally.sent < tally.handled < tally.sent, "some are messages, some are not"


@pytest.mark.parametrize(
    "fields",
    [
        {"exit_code": 1 << 63},
        {"peak_memory": (1 << 63) - 1},
        {"value_size": (1 << 63) - 1},
        {"error": "x" * 20_000_000},
        {"number": (1 << 64) - 1},
    ],
)
def test_an_extreme_outcome_of_a_live_attempt_is_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    target = SchedulerTarget(tmp_path, Random(1), in_memory=False)
    try:
        while not target.held:
            target.hear()
            target.turn(1.0)
        [attempt, *_] = target.pools["attempt"]
        held = target.machine.state.attempts[attempt]
        outcome = [attempt, held.job.number, held.index, "succeeded", b"7", b"", None, ""]
        outcome += [False, b"", b"", 0.0, 0.0, 1, False, 0, 0, 0.0]
        names = ["attempt", "job", "index", "state", "value", "digest", "exit_code", "error"]
        names += ["driver_fault", "stdout", "stderr", "started_at", "ended_at", "number"]
        names += ["crashed", "value_size", "peak_memory", "cpu_seconds"]
        for name, value in fields.items():
            outcome[names.index(name)] = value
        with pytest.raises(message_codec.MalformedFrame):
            message_codec.decode_work(raw(["results", 0.0, [outcome], []]))
        target.probe()
    finally:
        target.close()


def test_a_lease_of_nothing_is_no_lease() -> None:
    """Both ended a scheduler: a division by the slots of a lease, and an assertion of them."""
    held = [7, {"driver": "process"}, 0, 1]
    frame = ["register", 1, 1, 0.0, "w", {}, {}, [], [held], [], []]
    with pytest.raises(message_codec.MalformedFrame):
        message_codec.decode_work(raw(frame))
    with pytest.raises(message_codec.MalformedFrame):
        message_codec.decode_control(raw(["wanted", 7, 0, 0, True]))


def test_what_the_maker_writes_is_what_msgspec_reads() -> None:
    value = [None, True, -5, 1 << 40, (1 << 64) - 1, 1.5, "text", b"bytes", {"a": [1]}]
    assert msgspec.msgpack.decode(raw(value)) == value
