"""The loop stays awake for what is about to come, and for no longer than that is of use."""

from __future__ import annotations

from collections.abc import Callable

from mycel.runtime.busy_poll import LEFT_OUT, MOMENT_SECONDS, ROUND_SECONDS_MAX, Vigil

ROUND_SECONDS = ROUND_SECONDS_MAX / 2


class Loop:
    """One whose rounds take the time that the test says."""

    def __init__(self) -> None:
        self.tasks_out = 1
        self.now = 0.0
        self.round_seconds = ROUND_SECONDS
        self._soon: list[Callable[[], None]] = []
        self.vigil = Vigil(
            self._soon.append, lambda: self.tasks_out, now=lambda: self.now, give_way=self._others
        )

    @property
    def is_awake(self) -> bool:
        return bool(self._soon)

    def _others(self) -> None:
        self.now += self.round_seconds

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            soon, self._soon[:] = list(self._soon), []
            for callback in soon:
                callback()

    def answer(self) -> None:
        def take() -> None:
            self.tasks_out = 0

        self.vigil.hears(take)


def test_a_lone_task_is_waited_for_and_then_the_next() -> None:
    loop = Loop()
    loop.vigil.sent()
    loop.turn(3)
    assert loop.is_awake
    loop.answer()
    loop.turn(3)
    assert loop.is_awake, "its client may have another one"
    loop.vigil.asked()
    loop.turn()
    assert not loop.is_awake


def test_it_ends_by_itself() -> None:
    loop = Loop()
    loop.vigil.sent()
    loop.turn(1 + int(MOMENT_SECONDS / ROUND_SECONDS) + 1)
    assert not loop.is_awake
    assert loop.now < 2 * MOMENT_SECONDS


def test_one_task_of_many_is_not_waited_for() -> None:
    loop = Loop()
    loop.tasks_out = 2
    loop.vigil.sent()
    assert not loop.is_awake


def test_who_was_not_waited_for_is_not_expected_to_ask_again() -> None:
    loop = Loop()
    loop.answer()
    assert not loop.is_awake


def test_who_else_wants_the_processor_has_it() -> None:
    loop = Loop()
    loop.vigil.sent()
    loop.turn()
    loop.round_seconds = 2 * ROUND_SECONDS_MAX
    loop.turn()
    assert not loop.is_awake


def test_after_one_in_vain_a_few_are_left_out() -> None:
    loop = Loop()
    loop.vigil.sent()
    loop.turn(20)
    for _ in range(LEFT_OUT):
        loop.vigil.sent()
        assert not loop.is_awake
    loop.vigil.sent()
    assert loop.is_awake
