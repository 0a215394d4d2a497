"""What tasks were seen to use is reserved for the next of their kind, in coarse steps."""

from __future__ import annotations

import pytest

from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler.tasks.usage_profiles import (
    KINDS_MAX,
    Profiles,
    cores_step,
    memory_step,
    with_profile,
)

MEBIBYTE = 1 << 20
WORK = Work("process", ("train", "${lr}"))


@pytest.mark.parametrize(
    ("peak", "reserved"),
    [(0, 0), (100, 0), (199, 0), (204, 256), (300, 512), (410, 1024), (5000, 8192)],
)
def test_memory_goes_in_powers_of_two_with_headroom(peak: int, reserved: int) -> None:
    assert memory_step(peak * MEBIBYTE) == reserved * MEBIBYTE


@pytest.mark.parametrize(
    ("cpu", "seconds", "cores"), [(9.0, 0.1, 1), (1.0, 1.0, 1), (1.2, 1.0, 1), (3.9, 2.0, 2)]
)
def test_cores_are_whole_and_short_tasks_say_nothing(
    cpu: float, seconds: float, cores: int
) -> None:
    assert cores_step(cpu, seconds) == cores


def test_a_profile_only_grows_and_is_told_when_it_does() -> None:
    profiles = Profiles()
    assert profiles.observe(WORK, 10 * MEBIBYTE, 0.1, 1.0, 1.0) is None
    assert profiles.of(WORK) is None
    first = profiles.observe(WORK, 300 * MEBIBYTE, 0.1, 1.0, 2.0)
    assert first is not None
    assert profiles.observe(WORK, 300 * MEBIBYTE, 0.1, 1.0, 3.0) is None
    assert profiles.observe(WORK, 250 * MEBIBYTE, 0.1, 1.0, 4.0) is None
    second = profiles.observe(WORK, 1 * MEBIBYTE, 4.0, 1.0, 5.0)
    assert second is not None
    wanted = Requirements(cpu_cores=4.0, min_memory=512 * MEBIBYTE)
    assert profiles.of(WORK) == wanted
    assert profiles.of(Work("process", ("test",))) is None
    again = Profiles()
    again.restore([first, second])
    assert again.of(WORK) == wanted


def test_constraints_stay() -> None:
    asked = Requirements(cpu_cores=1.0, arch="arm64", labels=(("a", "b"),))
    found = with_profile(asked, Requirements(cpu_cores=2.0, min_memory=5))
    assert found == Requirements(cpu_cores=2.0, min_memory=5, arch="arm64", labels=(("a", "b"),))


def test_no_more_kinds_are_kept_than_the_limit() -> None:
    profiles = Profiles()
    works = [Work("process", (str(number),)) for number in range(KINDS_MAX + 1)]
    for number, work in enumerate(works):
        profiles.observe(work, 1 << 30, 0.0, 1.0, float(number))
    assert profiles.of(works[0]) is None
    assert profiles.of(works[1]) is not None
