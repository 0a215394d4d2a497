"""The script of an allocation in which a worker runs.

The worker's home is on the node's own disk: its database must not be on a network file system. It
joins anew each time, and its home goes with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_SCRIPT: Final = """\
#!/bin/sh
home=$(mktemp -d "${{TMPDIR:-/tmp}}/mycel-pilot.XXXXXX") || exit 75
{program} worker --home "$home" --name {name} --config {config} --join {invite} </dev/null &
worker=$!
trap 'kill -TERM "$worker" 2>/dev/null' TERM INT
wait "$worker"
code=$?
while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
rm -rf "$home"
exit "$code"
"""


def pilot_script(program: Sequence[str], name: str, config: Path, invite: Path) -> str:
    return _SCRIPT.format(
        program=shlex.join(program),
        name=shlex.quote(name),
        config=shlex.quote(str(config)),
        invite=shlex.quote(str(invite)),
    )
