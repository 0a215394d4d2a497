"""All processes with nodes, as the conductor sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from .child_calls import Child
from .measure_plan import Plan

LOOK_SECONDS: Final = 0.5


class Place(NamedTuple):
    """Where a node is."""

    house: int
    node: int


class Houses:
    """The gateway is the first node of the first house."""

    def __init__(self, children: list[Child], sizes: list[int]) -> None:
        self._children = dict(enumerate(children))
        self._sizes = sizes

    @property
    def live(self) -> list[Place]:
        return [
            Place(house, node) for house in self._children for node in range(self._sizes[house])
        ]

    async def all(self, name: str, **arguments: Any) -> list[Any]:
        """What each living process answers."""
        calls = (child.call(name, **arguments) for child in self._children.values())
        return await asyncio.gather(*calls)

    async def at(self, place: Place, name: str, **arguments: Any) -> Any:
        return await self._children[place.house].call(name, node=place.node, **arguments)

    async def populate(self, owner: str) -> str:
        """Starts every node; the address of the gateway."""
        gateway = await self._children[0].call("gateway", owner=owner, listen=_listen(0))
        for house, size in enumerate(self._sizes):
            count = size - (house == 0)
            call = self._children[house].call
            await call("populate", owner=owner, listen=_listen(house), count=count)
        return str(gateway)

    async def kill(self, house: int) -> None:
        await self._children.pop(house).kill()

    async def usage(self) -> dict[str, float]:
        """Summed over the living processes."""
        answers = await self.all("usage")
        return {name: sum(answer[name] for answer in answers) for name in answers[0]}

    async def settle(self, seconds: float, seconds_max: float) -> None:
        """Returns when no connection has come or gone for so long: joining is over then."""
        connections, since = -1.0, time.monotonic()
        ends_at = since + seconds_max
        while time.monotonic() < min(since + seconds, ends_at):
            now = (await self.usage())["connections"]
            if now != connections:
                connections, since = now, time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)


def _listen(house: int) -> str:
    """An address of its own for each process, as machines have: a node limits what it takes
    from one."""
    return f"/ip4/127.0.{house // 250}.{house % 250 + 1}/tcp/0"


@asynccontextmanager
async def open_houses(plan: Plan) -> AsyncIterator[Houses]:
    """Whatever happens, no process is left."""
    children: list[Child] = []
    try:
        for _ in range(plan.processes):
            # One by one: a start that is cancelled leaves those before it in the list.
            children.append(await Child.start("mycel.bench.swarm.node_host"))  # noqa: PERF401
        yield Houses(children, plan.spread())
    finally:
        for child in children:
            await child.kill()
