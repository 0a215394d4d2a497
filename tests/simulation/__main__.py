"""Runs seeds of the fault runner.

python -m tests.simulation --seed 1234          one seed again, with its story
python -m tests.simulation --seeds 2000         seeds 0 … 1999 on all cores
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys

from .coverage import Coverage, recorded
from .judge import judge
from .story import tell
from .world import World

SEEDS_FOR_ALL = 2000
"""With so many, every row is visited that can be."""
SEEDS_PER_NOTE = 500


def _run(seed: int) -> tuple[int, list[str], set[tuple[str, str, str]]]:
    with recorded() as coverage:
        world = World(seed)
        try:
            world.run()
            complaints = judge(world)
        except AssertionError as error:
            complaints = [*world.history.complaints, f"{type(error).__name__}: {error}"]
    return seed, complaints, coverage.visited


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and tell its story")
    parser.add_argument("--seeds", type=int, default=200, help="run so many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if options.seed is not None:
        complaints = tell(options.seed)
        print("\n".join(complaints) or "no complaint")
        return 1 if complaints else 0
    total = Coverage()
    failed = 0
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.Pool(os.cpu_count()) as pool:
        done = pool.imap_unordered(_run, seeds, chunksize=10)
        for count, (seed, complaints, visited) in enumerate(done, 1):
            total.visited |= visited
            if count % SEEDS_PER_NOTE == 0:
                print(f"{count} of {len(seeds)}, {failed} failed", file=sys.stderr)
            if complaints:
                failed += 1
                print(f"seed {seed}: {complaints[0]}")
                print(f"  replay it: python -m tests.simulation --seed {seed}")
    print(total)
    print(f"{len(seeds) - failed} passed, {failed} failed")
    if len(seeds) >= SEEDS_FOR_ALL and total.unexplained:
        print(
            "rows of the tables that were not visited need a reason in tests/simulation/coverage.py"
        )
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
