"""`mycel down`: stops all that `mycel up` started, and says what it did."""

from __future__ import annotations

from mycel.cli.arguments import home_parser
from mycel.console.tables import print_json
from mycel.local import local_swarm


def main(given: list[str]) -> int:
    described = home_parser(
        "down", "Stop the swarm on this machine. What runs goes back to the queue."
    )
    described.add_argument(
        "--drain",
        action="store_true",
        help="first let what runs finish, as long as [worker] drain_seconds allows",
    )
    options = described.parse_args(given)
    stopped = local_swarm.down(options.home, options.drain)
    if options.json:
        print_json({"stopped": stopped})
    elif not stopped:
        print("nothing was running")
    else:
        for role in stopped:
            how = "killed: it did not stop when asked" if role.killed else "stopped"
            print(f"{role.name:<12} {role.pid:<8} {how}")
    return 0
