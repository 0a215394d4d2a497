"""`mycel peers`, `mycel swarm status`, `mycel swarm ping`."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from mycel.cli.arguments import connect, parser
from mycel.console.tables import Column, duration, print_json, print_table

PINGS_DEFAULT = 4
PINGS_MAX = 100


def peers(given: list[str]) -> int:
    chosen = parser("peers", "List the peers that the scheduler's node is connected with.")
    options = chosen.parse_args(given)
    with connect(options) as client:
        found = client.get("/api/v1/peers")
    if options.json:
        print_json(found)
    else:
        _print_peers(found["items"])
    return 0


def _print_peers(items: list[dict[str, Any]]) -> None:
    print_table(
        (
            Column("PEER", least=10, keeps_end=True),
            Column("NAME", least=8),
            "ROLE",
            "PATH",
            Column("RTT", leaves=1),
            Column("SEEN", leaves=3),
            Column("CONNECTED", leaves=2),
            Column("VERSION", least=8, leaves=4),
        ),
        [
            (
                one["peer_id"],
                one["name"] or "-",
                ",".join(one["roles"]) or "-",
                one["path"],
                _milliseconds(one["rtt_ms"]),
                f"{duration(one['last_seen_seconds'])} ago",
                duration(one["connected_seconds"]),
                one["version"] or "-",
            )
            for one in items
        ],
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"


def swarm(given: list[str]) -> int:
    options = parser("swarm", "Show how the scheduler stands in its swarm, or ping a peer of it.")
    options.add_argument("what", choices=("status", "ping"))
    options.add_argument(
        "peer", nargs="?", metavar="PEER", help="to ping: its id, a unique part of it, or a name"
    )
    options.add_argument(
        "--count", type=int, default=PINGS_DEFAULT, metavar="N", help="of pings, at most 100"
    )
    chosen = options.parse_args(given)
    if (chosen.what == "ping") != (chosen.peer is not None):
        options.error("'ping' takes a PEER, 'status' takes none")
    if not 1 <= chosen.count <= PINGS_MAX:
        options.error(f"--count is from 1 to {PINGS_MAX}")
    return _ping(chosen) if chosen.what == "ping" else _status(chosen)


def _status(options: Namespace) -> int:
    with connect(options) as client:
        status = client.get("/api/v1/swarm")
        items = client.get("/api/v1/peers")["items"]
    if options.json:
        print_json({**status, "peers_connected": items})
        return 0
    ways = [way for way in ("dht", "gossip") if status["discovery"][way]]
    workers = f"{status['workers_linked']} linked of {status['workers_known']} known"
    if status["checks_late"]:
        workers += f", {status['checks_late']} checks were late"
    rows = (
        ("node", f"{status['name']} ({', '.join(status['roles'])}), version {status['version']}"),
        ("peer id", status["peer_id"]),
        ("addresses", ", ".join(status["addresses"]) or "none"),
        ("gateways", ", ".join(status["gateways"]) or "none"),
        ("reservations", ", ".join(status["reservations"]) or "none"),
        ("workers", workers),
        ("discovery", f"{' and '.join(ways) or 'off'}, {status['discovery']['searches']} searches"),
    )
    for heading, text in rows:
        print(f"{heading:<13} {text}")
    print()
    _print_peers(items)
    return 0


def _ping(chosen: Namespace) -> int:
    with connect(chosen) as client:
        answer = client.post("/api/v1/swarm/ping", {"peer": chosen.peer, "count": chosen.count})
    if chosen.json:
        print_json(answer)
    else:
        _print_ping(answer)
    return 0 if answer["received"] == answer["sent"] else 1


def _print_ping(answer: dict[str, Any]) -> None:
    for number, milliseconds in enumerate(answer["round_trips_ms"], 1):
        print(f"{number}: {milliseconds:.3f} ms")
    print(f"{answer['received']} of {answer['sent']} answered by {answer['peer_id']}")
    if answer["received"]:
        trio = "/".join(f"{answer[name]:.3f}" for name in ("min_ms", "avg_ms", "max_ms"))
        print(f"min/avg/max {trio} ms, {answer['path'] or 'not connected'}")
    if answer["error"]:
        print(f"then: {answer['error']}")
