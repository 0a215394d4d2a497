"""One target, one hostile speaker, and what attacks have in common."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from mycel.bench.swarm.child_calls import Child

from .credentials import HELLO_PROTOCOL, YES, Owner, Who, hello, somebody
from .hostile import Hostile, Refused, hostile

BATCH: Final = 40
WAIT_MILLISECONDS: Final = 15
"""For an answer, before the next is sent."""
READ_MILLISECONDS: Final = 8000
"""For an answer that has to come."""
ENTRIES_MAX: Final = 400
"""So many identities are spent on one attack, and one more for every few payloads: each is cut
off at some point."""
Control = Callable[[], Awaitable[bool]]


class Row(msgspec.Struct):
    """What came of one attack."""

    attack: str
    sent: int = 0
    reached: int = 0
    """As the validator has counted, where it counts; else those whose stream was taken."""
    accepted: int = 0
    controls: int = 0
    controls_accepted: int = 0
    is_spoken: bool = True
    """False for a protocol that the node does not speak."""

    async def control(self, ask: Control) -> None:
        self.controls += 1
        self.controls_accepted += await ask()


class Siege:
    def __init__(self, target: Child, speaker: Hostile, owner: Owner, random: Random) -> None:
        self.target = target
        self.speaker = speaker
        self.owner = owner
        self.random = random
        self.address = ""
        self.warm_mb = 0.0
        """What the target took when it had seen everything once."""

    async def begin(self) -> None:
        who = somebody()
        self.address = await self.target.call(
            "serve",
            secret=who.seed.hex(),
            owner_public=self.owner.public.hex(),
            token=self.owner.token(who.peer, role="gateway").hex(),
            listen="/ip4/127.0.0.1/tcp/0",
        )

    async def report(self) -> dict[str, Any]:
        answer: dict[str, Any] = await self.target.call("report")
        return answer

    async def count(self, name: str) -> int:
        return int((await self.report())["counts"].get(name, 0))

    async def count_of(self, beginning: str) -> int:
        """Of all that is counted under names that begin so."""
        counts = (await self.report())["counts"]
        return sum(count for name, count in counts.items() if name.startswith(beginning))

    async def say(self, who: Who, first: bytes) -> str:
        """Connects and says a hello; a link if that was taken. Raises `Refused`."""
        link = await self.speaker.connect(who.seed, self.address)
        try:
            stream = await self.speaker.open(link, HELLO_PROTOCOL)
            await self.speaker.write(stream, first)
            head = await self.speaker.read(stream, 4, READ_MILLISECONDS)
            if len(head) < 4 or head[1] != 0:
                raise Refused("the hello was refused")
            await self.speaker.read(stream, int.from_bytes(head[2:], "big"), READ_MILLISECONDS)
            await self.speaker.write(stream, YES)
            await self.speaker.close(stream)
        except Refused:
            await self.speaker.leave(link)
            raise
        return link

    async def enter(self, who: Who | None = None) -> str:
        """A link of an admitted peer that nobody has seen before."""
        who = who or somebody()
        return await self.say(who, hello(self.owner.token(who.peer)))

    async def is_admitted(self) -> bool:
        """The control of every hello: a good one is taken."""
        try:
            await self.speaker.leave(await self.enter())
        except Refused:
            return False
        return True

    async def speaks(self, protocol: str) -> bool:
        link = await self.enter()
        try:
            await self.speaker.close(await self.speaker.open(link, protocol))
        except Refused:
            return False
        finally:
            await self.speaker.leave(link)
        return True

    async def pelt(
        self, row: Row, protocol: str, payloads: Iterator[bytes], count: int, control: Control
    ) -> None:
        """A stream for each payload, from admitted peers; who is cut off comes again as
        somebody else."""
        link = ""
        for _ in range(ENTRIES_MAX + count // 4):
            if row.sent >= count:
                break
            link = link or await self.enter()
            batch = list(itertools.islice(payloads, min(BATCH, count - row.sent)))
            done = await self.speaker.pelt(link, protocol, batch, WAIT_MILLISECONDS)
            row.sent += len(batch) - done.failed
            row.reached += done.ended + done.silent
            await row.control(control)
            if done.failed:
                await self.speaker.leave(link)
                link = ""
        if link:
            await self.speaker.leave(link)


@asynccontextmanager
async def siege(program: Path, seed: int) -> AsyncIterator[Siege]:
    target = await Child.start("tests.fuzz.target")
    try:
        async with hostile(program) as speaker:
            made = Siege(target, speaker, Owner(), Random(seed))
            await made.begin()
            yield made
    finally:
        await target.kill()


async def eventually(look: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether it became true in time."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while not await look():
        if loop.time() > ends_at:
            return False
        await asyncio.sleep(0.05)
    return True
