"""Attacks a node in every way that there is, and says what came of it.

    python -m tests.fuzz.run [--frames 10000] [--records 10000] [--tokens 1000]
                             [--messages 100000] [--json]

Exit code 0 only if no typed message ends or hangs a machine (see `typed`); if nothing false was
accepted, everything good in between was, the node never failed, and it grew by less than its
limit; and if a peer that floods it is cut off in time, and the p99 of the others' requests stays
under twice its quiet value.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from mycel.bench.swarm.child_calls import ChildFailed
from mycel.membership.protocols import PROTOCOLS

from . import attacks, typed
from .flood import CUT_WITHIN_SECONDS, RATIO_MAX, Bounds, flooding, until_clear
from .hostile import build
from .siege import Row, Siege, siege

GROWTH_MB_MAX: Final = 50.0
WARM_UP: Final = 20
"""Of each attack before memory is looked at: what is loaded once is no growth."""
FLOODS_MAX: Final = 30
"""So many at the most, until there is no doubt."""


class Sizes(msgspec.Struct, frozen=True):
    frames: int = 10_000
    """On every protocol."""
    records: int = 10_000
    """And as many messages of gossip, and claims to provide."""
    tokens: int = 1_000


class Verdict(msgspec.Struct):
    rows: list[Row] = []
    growth_mb: float = 0.0
    crashes: int = 0
    faults: list[str] = []
    seconds: float = 0.0
    floods: list[float] = []
    """How long each lasted, in seconds."""
    flood_p99_ratio: Bounds | None = None
    typed: list[typed.Tally] = []

    @property
    def complaints(self) -> list[str]:
        said = [f"{row.attack}: {row.accepted} accepted" for row in self.rows if row.accepted]
        said += [
            f"{row.attack}: {row.controls - row.controls_accepted} good ones refused"
            for row in self.rows
            if row.controls_accepted != row.controls
        ]
        said += [f"{row.attack}: nothing reached it" for row in self.rows if not row.reached]
        said += [f"unexpected: {fault}" for fault in self.faults]
        said += [f"{one.target}: {fault}" for one in self.typed for fault in one.faults]
        if self.crashes:
            said.append("the node has died")
        if self.floods and max(self.floods) > CUT_WITHIN_SECONDS:
            said.append(f"a flood lasted {max(self.floods):.1f} s")
        ratio = self.flood_p99_ratio
        if ratio is not None and ratio.middle >= RATIO_MAX:
            sure = "surely" if ratio.is_felt else "perhaps, this machine is too busy to be sure"
            said.append(f"a flood made the others' p99 {ratio.middle:.1f} times as high ({sure})")
        if self.growth_mb > GROWTH_MB_MAX:
            said.append(f"it grew by {self.growth_mb:.0f} MB, more than {GROWTH_MB_MAX:.0f}")
        return said


Attack = Callable[[Siege], Awaitable[Row]]


def plan(sizes: Sizes) -> list[Attack]:
    def on_stream(protocol: str) -> Attack:
        return lambda siege: attacks.broken_frames(siege, protocol, sizes.frames)

    def on_protocol(protocol: str) -> Attack:
        return lambda siege: attacks.broken_protocols(siege, protocol, sizes.frames)

    return [
        lambda siege: attacks.noise_on_the_port(siege, sizes.frames),
        lambda siege: attacks.strangers_on_protocols(siege, max(26, sizes.tokens)),
        lambda siege: attacks.broken_hellos(siege, sizes.frames),
        lambda siege: attacks.false_tokens(siege, sizes.tokens),
        *(on_stream(protocol.name) for protocol in PROTOCOLS),
        *(on_protocol(protocol) for protocol in attacks.FOREIGN),
        lambda siege: attacks.forged_records(siege, sizes.records),
        lambda siege: attacks.false_providers(siege, sizes.records),
        lambda siege: attacks.forged_gossip(siege, sizes.records),
    ]


async def run(sizes: Sizes, seed: int, say: Callable[[str], None]) -> Verdict:
    verdict = Verdict(rows=[], faults=[], typed=[])
    began = time.monotonic()
    async with siege(build(), seed) as made:
        try:
            async for row in _attack(made, sizes):
                verdict.rows.append(row)
                say(_line(row))
            report = await made.report()
            verdict.growth_mb = report["pss_mb"] - made.warm_mb
            verdict.faults = report["faults"]
        except ChildFailed as error:
            verdict.crashes += 1
            verdict.faults.append(str(error))
    verdict.seconds = time.monotonic() - began
    return verdict


async def flood(seed: int, verdict: Verdict, say: Callable[[str], None]) -> None:
    """On a node that has seen nothing else."""
    program = build()
    async with siege(program, seed) as made, flooding(made, program) as floods:
        verdict.flood_p99_ratio = await until_clear(floods, FLOODS_MAX, say)
        verdict.floods = floods.measured.cut_seconds


async def _attack(made: Siege, sizes: Sizes) -> AsyncIterator[Row]:
    few = Sizes(WARM_UP, WARM_UP, WARM_UP)
    for attack in plan(few):
        await attack(made)
    made.warm_mb = (await made.report())["pss_mb"]
    for attack in plan(sizes):
        row = await attack(made)
        if row.is_spoken:
            yield row


def _line(row: Row) -> str:
    numbers = (row.sent, row.reached, row.accepted, row.controls, row.controls_accepted)
    return f"{row.attack:<34}" + "".join(f"{number:>9,}" for number in numbers)


async def _everything(options: argparse.Namespace) -> Verdict:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    sizes = Sizes(options.frames, options.records, options.tokens)
    verdict = await run(sizes, options.seed, say)
    say(typed.HEAD)
    verdict.typed = typed.everything(options.messages, options.seed, say)
    await flood(options.seed, verdict, say)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = Sizes()
    parser.add_argument("--frames", type=int, default=sizes.frames, help="on every protocol")
    parser.add_argument("--records", type=int, default=sizes.records, help="and gossip messages")
    parser.add_argument("--tokens", type=int, default=sizes.tokens)
    parser.add_argument("--messages", type=int, default=typed.MESSAGES, help="typed ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figures as one object")
    options = parser.parse_args()
    heads = ("sent", "reached", "accepted", "good", "taken")
    print(f"{'attack':<34}" + "".join(f"{head:>9}" for head in heads), file=sys.stderr)
    verdict = asyncio.run(_everything(options))
    if options.json:
        complaints = {"complaints": verdict.complaints}
        print(msgspec.json.encode(msgspec.to_builtins(verdict) | complaints).decode())
    grown = f"grew by {verdict.growth_mb:.1f} MB"
    print(f"{grown}, {verdict.crashes} crashes, {verdict.seconds:.0f} s", file=sys.stderr)
    for complaint in verdict.complaints:
        print(f"WRONG: {complaint}", file=sys.stderr)
    return 1 if verdict.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
