"""A task across a relay that takes long and moves much: two LANs that can reach only the gateway.

    python tests/soak/relayed.py                          1 GB in and out, ten minutes
    python tests/soak/relayed.py --size 50MB --seconds 5

The scheduler is in one LAN, the worker in the other. The worker fetches the input and sends the
output through the gateway, which must neither cut the circuit nor lose a byte; the task runs
once. Needs root, `ip` and `nft`; without them it is left out, and says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:  # run by its path
    sys.path.insert(0, str(REPOSITORY))

from mycel.blobs import digests  # noqa: E402
from mycel.config.sizes import parse_size  # noqa: E402
from tests.end_to_end.swarm import eventually  # noqa: E402
from tests.network.hosts import Scheduler  # noqa: E402
from tests.network.internet import Internet  # noqa: E402
from tests.network.namespaces import why_unavailable  # noqa: E402

BYTES: Final = 1_000_000_000
"""In all: one half goes there, the other comes back."""
SECONDS: Final = 600.0
JOIN_SECONDS: Final = 60.0
SLACK_SECONDS: Final = 600.0
CHUNK_BYTES: Final = 1 << 20

SCRIPT: Final = 'echo "$MYCEL_ATTEMPT"; LC_ALL=C tr "a-z" "b-za" < input > output; sleep "$0"'
"""The output differs from the input, or nothing would have to come back."""

Say = Callable[[str], None]


class Relayed:
    def __init__(self, folder: Path, size: int, seconds: float, say: Say) -> None:
        self._folder = folder
        self._half = size // 2
        self._seconds = seconds
        self._say = say
        self.complaints: list[str] = []
        self.figures: dict[str, Any] = {"relayed_bytes": 2 * self._half, "relayed_seconds": seconds}

    def run(self) -> list[str]:
        """The complaints; none is good."""
        internet = Internet(self._folder)
        try:
            gateway = internet.open_host("gate", 11)
            office = internet.lan("office", 1, [gateway])
            plant = internet.lan("plant", 2, [gateway])
            door = gateway.start("gateway")
            scheduler = office.host.serve(door.addresses)
            plant.host.start("worker", "far", bootstrap=door.addresses)
            eventually(lambda: scheduler.healthy() == {"far"}, "the worker is there", JOIN_SECONDS)
            self._through(scheduler)
        finally:
            internet.remove()
        return self.complaints

    def _through(self, scheduler: Scheduler) -> None:
        client, began = scheduler.client, time.monotonic()
        given = self._folder / "input"
        wanted = self._write(given)
        task = client.submit_task(
            command=["sh", "-c", SCRIPT, f"{self._seconds:g}"],
            inputs=[{"path": "input", "from": str(given)}],
            outputs=["output"],
        )
        self._say(f"sent; the task sleeps {self._seconds:g} s between its input and its output")
        task = client.wait(task.id, self._seconds + SLACK_SECONDS)
        self._expect(task.state == "succeeded", f"the task is {task.state}: {task.error}")
        self._expect(len(task.attempts) == 1, f"it was tried {len(task.attempts)} times")
        if task.state == "succeeded":
            [found] = client.get(task.id, self._folder / "home")
            self._expect(digests.of_file(found) == wanted, "what came back is not what was made")
        self.figures["relayed_task_s"] = round(time.monotonic() - began, 1)
        peers = scheduler.shows("peers")["items"]
        paths = {peer["path"] for peer in peers if "worker" in peer["roles"]}
        self._expect(paths == {"relayed"}, f"the way to the worker was {paths}")

    def _write(self, path: Path) -> str:
        """Fills the input; the digest of the output that it must become."""
        changed = path.with_name("wanted")
        table = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz", b"bcdefghijklmnopqrstuvwxyza")
        with path.open("wb") as source, changed.open("wb") as target:
            for start in range(0, self._half, CHUNK_BYTES):
                chunk = os.urandom(min(CHUNK_BYTES, self._half - start))
                source.write(chunk)
                target.write(chunk.translate(table))
        digest = digests.of_file(changed)
        changed.unlink()
        return digest

    def _expect(self, true: bool, otherwise: str) -> None:
        if not true:
            self.complaints.append(otherwise)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", default=str(BYTES), help="in all, such as 1GB")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    reason = why_unavailable()
    if reason:
        print(f"left out: {reason}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="mycel-relayed-") as folder:
        relayed = Relayed(Path(folder), parse_size(options.size), options.seconds, print)
        complaints = relayed.run()
    print(json.dumps(relayed.figures))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
