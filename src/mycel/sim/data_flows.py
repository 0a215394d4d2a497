"""Job data on its way: flows share links max-min fairly.

Progressive filling: all flows grow at the same rate until a link is full; the flows on that link
keep their rate, the others grow on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .entities import NS_PER_S

Direction = tuple[int, int]
"""A link and one of its directions."""


@dataclass(slots=True, eq=False)
class Flow:
    directions: tuple[Direction, ...]
    bits_left: float
    finished: Callable[[], None]
    bits_per_ns: float = 0.0
    version: int = field(default=0)


def fair_rates(
    flows: Sequence[Sequence[Direction]], bandwidth: Mapping[Direction, float]
) -> list[float]:
    """The max-min fair rate of each flow. A flow without links is not limited: infinite."""
    rates = [float("inf")] * len(flows)
    room = dict(bandwidth)
    users: dict[Direction, set[int]] = {}
    for number, directions in enumerate(flows):
        for direction in directions:
            users.setdefault(direction, set()).add(number)
    while users:
        tightest = min(users, key=lambda one: (room[one] / len(users[one]), one))
        rate = room[tightest] / len(users[tightest])
        for number in sorted(users[tightest]):
            rates[number] = rate
            for direction in flows[number]:
                room[direction] = max(0.0, room[direction] - rate)
                if direction != tightest:
                    users[direction].discard(number)
                    if not users[direction]:
                        del users[direction]
        del users[tightest]
    return rates


class Transfers:
    """Flows in progress. `schedule(delay_ns, call)` is the engine's clock."""

    def __init__(
        self,
        bandwidth: Mapping[Direction, float],
        now: Callable[[], int],
        schedule: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """Bandwidths in bits per nanosecond."""
        self._bandwidth: Final = bandwidth
        self._now: Final = now
        self._schedule: Final = schedule
        self._flows: Final[dict[int, Flow]] = {}
        self._number = 0
        self._updated_ns = 0
        self.bits_carried: Final[dict[Direction, float]] = {}

    def start(
        self, directions: tuple[Direction, ...], bytes_: int, finished: Callable[[], None]
    ) -> int:
        """Returns the flow's number, for `cancel`."""
        self._advance()
        self._number += 1
        self._flows[self._number] = Flow(directions, bytes_ * 8.0, finished)
        self._share()
        return self._number

    def cancel(self, number: int) -> None:
        self._advance()
        if self._flows.pop(number, None) is not None:
            self._share()

    def carried_now(self) -> dict[Direction, float]:
        self._advance()
        return self.bits_carried

    def _advance(self) -> None:
        elapsed_ns = self._now() - self._updated_ns
        self._updated_ns = self._now()
        if not elapsed_ns:
            return
        for flow in self._flows.values():
            carried = min(flow.bits_left, flow.bits_per_ns * elapsed_ns)
            flow.bits_left -= carried
            for direction in flow.directions:
                self.bits_carried[direction] = self.bits_carried.get(direction, 0.0) + carried

    def _share(self) -> None:
        flows = self._flows
        rates = fair_rates([flow.directions for flow in flows.values()], self._bandwidth)
        for (number, flow), rate in zip(flows.items(), rates, strict=True):
            if rate != flow.bits_per_ns or not flow.version:
                flow.bits_per_ns = rate
                flow.version += 1
                left_ns = -int(-flow.bits_left // rate)  # rounded up
                self._schedule(left_ns, self._ender(number, flow.version))

    def _ender(self, number: int, version: int) -> Callable[[], None]:
        def end() -> None:
            flow = self._flows.get(number)
            if flow is None or flow.version != version:
                return  # its rate has changed since, or it was cancelled
            self._advance()
            del self._flows[number]
            self._share()
            flow.finished()

        return end


def bits_per_ns(bits_per_s: int) -> float:
    return bits_per_s / NS_PER_S
