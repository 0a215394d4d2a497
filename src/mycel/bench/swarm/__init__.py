"""`mycel bench swarm`: real libp2p nodes on loopback, many of them, in several processes.

exchange ── two nodes in two processes: requests, bulk, hello; plain TCP beside them
houses ──── ten processes of thirty nodes, joined through one gateway
              ├─ look-ups of capabilities that one node alone has
              ├─ gossip, spaced and as one burst
              └─ SIGKILL of two processes, look-ups and gossip again
"""

from __future__ import annotations

import argparse

from mycel.console.errors import UsageError
from mycel.console.tables import print_json

from .measure_plan import NODES_MAX, NODES_MIN, PROCESSES_MIN, Plan


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench swarm",
        description="Measure a swarm of libp2p nodes on loopback: joining, look-ups, gossip, "
        "streams. Takes about two minutes for 300 nodes; nothing is left behind.",
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument(
        "--nodes", type=int, default=300, metavar="N", help="how many nodes join (300)"
    )
    parser.add_argument(
        "--processes", type=int, default=10, metavar="P", help="that they are spread over (10)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="F",
        help="so many times as much of each (1); figures of other scales do not compare",
    )
    parser.add_argument("--seed", type=int, default=1, help="of every random choice (1)")
    options = parser.parse_args(given)
    if not NODES_MIN <= options.nodes <= NODES_MAX:
        raise UsageError(f"--nodes is {NODES_MIN} to {NODES_MAX:,}")
    if not PROCESSES_MIN <= options.processes <= options.nodes // 2:
        raise UsageError(
            f"--processes is {PROCESSES_MIN} (two are killed) to half as many as there are nodes"
        )

    if not 0 < options.scale <= 100:
        raise UsageError("--scale is above 0 and at most 100")

    from mycel.bench.quick.figures import rounded, show

    from .measure import measure
    from .swarm_report import notes

    plan = Plan(options.nodes, options.processes, options.seed)
    figures = measure(plan.scaled(options.scale), options.scale)
    if options.json:
        print_json(rounded(figures))
    else:
        show(figures, notes(figures))
    return 0
