"""The loop polls for an answer that is about to arrive, and no longer than that is of use."""

from __future__ import annotations

from collections.abc import Callable

from mycel.runtime.busy_poll import (
    POLL_SECONDS_MAX,
    ROUND_SECONDS_MAX,
    SKIPPED_AFTER_FAILURE,
    BusyPoll,
)

ROUND_SECONDS = ROUND_SECONDS_MAX / 2


class Loop:
    """One whose rounds take the time that the test says."""

    def __init__(self) -> None:
        self.tasks_out = 1
        self.now = 0.0
        self.round_seconds = ROUND_SECONDS
        self._soon: list[Callable[[], None]] = []
        self.busy_poll = BusyPoll(
            self._soon.append, lambda: self.tasks_out, now=lambda: self.now, give_way=self._others
        )

    @property
    def is_polling(self) -> bool:
        return bool(self._soon)

    def _others(self) -> None:
        self.now += self.round_seconds

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            soon, self._soon[:] = list(self._soon), []
            for callback in soon:
                callback()

    def answer(self) -> None:
        was_polled = self.busy_poll.answer_arrived()
        self.tasks_out = 0
        self.busy_poll.answer_handled(was_polled)


def test_it_polls_for_the_answer_to_a_lone_task_and_then_for_the_next_request() -> None:
    loop = Loop()
    loop.busy_poll.tasks_sent()
    loop.turn(3)
    assert loop.is_polling
    loop.answer()
    loop.turn(3)
    assert loop.is_polling, "its client may have another one"
    loop.busy_poll.request_arrived()
    loop.turn()
    assert not loop.is_polling


def test_it_ends_by_itself() -> None:
    loop = Loop()
    loop.busy_poll.tasks_sent()
    loop.turn(1 + int(POLL_SECONDS_MAX / ROUND_SECONDS) + 1)
    assert not loop.is_polling
    assert loop.now < 2 * POLL_SECONDS_MAX


def test_it_does_not_poll_for_one_task_of_many() -> None:
    loop = Loop()
    loop.tasks_out = 2
    loop.busy_poll.tasks_sent()
    assert not loop.is_polling


def test_an_answer_that_was_not_polled_for_is_followed_by_no_polling() -> None:
    loop = Loop()
    loop.answer()
    assert not loop.is_polling


def test_another_process_gets_the_processor() -> None:
    loop = Loop()
    loop.busy_poll.tasks_sent()
    loop.turn()
    loop.round_seconds = 2 * ROUND_SECONDS_MAX
    loop.turn()
    assert not loop.is_polling


def test_after_polling_in_vain_it_skips_a_few() -> None:
    loop = Loop()
    loop.busy_poll.tasks_sent()
    loop.turn(20)
    for _ in range(SKIPPED_AFTER_FAILURE):
        loop.busy_poll.tasks_sent()
        assert not loop.is_polling
    loop.busy_poll.tasks_sent()
    assert loop.is_polling
