"""The script that a batch system runs for an attempt. It makes sure that nothing runs twice.

    <shared>/<attempt>            the claim: who makes this folder runs the job, and nobody else
    <shared>/<attempt>.<index>    the same for an element of an array
      work/                       where the command runs; what it leaves there are its files
      stdout  stderr  exit_code   exit_code appears whole, when everything else is written

A batch system may run a script again, and the agent may have to submit one again when it cannot
tell whether the first submission arrived. The second copy finds the claim and stops.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from mycel.core.agent.batch_jobs import ClusterJob

from .batch_system import ELEMENT_VARIABLE

NO_CLAIM: Final = 75
"""EX_TEMPFAIL: the shared folder is not there, or full. Nothing has run."""
EXIT_CODE: Final = "exit_code"
STDOUT: Final = "stdout"
STDERR: Final = "stderr"
WORK: Final = "work"

_SCRIPT: Final = """\
#!/bin/sh
claim={claim}
if ! mkdir "$claim" 2>/dev/null; then
    if [ -e "$claim" ] || [ -L "$claim" ]; then exit 0; fi
    echo "mycel: $claim cannot be made: does this node see the shared folder?" >&2
    exit {no_claim}
fi
mkdir "$claim/{work}" && cd "$claim/{work}" || exit {no_claim}
export {element} MYCEL_ATTEMPT={attempt}
{environment}
(exec {command}) >"$claim/{stdout}" 2>"$claim/{stderr}" </dev/null &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"
code=$?
# A signal ends the first wait early; the command may take its time to end.
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
trap '' TERM INT
echo "$code" >"$claim/.{exit_code}" && mv "$claim/.{exit_code}" "$claim/{exit_code}"
exit "$code"
"""


def job_script(attempt: str, job: ClusterJob, shared: Path) -> str:
    claim = shlex.quote(str(shared / attempt))
    if job.elements:
        claim += f'".${ELEMENT_VARIABLE}"'
    environment = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()
    )
    return _SCRIPT.format(
        claim=claim,
        no_claim=NO_CLAIM,
        work=WORK,
        element=ELEMENT_VARIABLE,
        attempt=shlex.quote(attempt),
        environment=environment,
        command=shlex.join(job.command),
        stdout=STDOUT,
        stderr=STDERR,
        exit_code=EXIT_CODE,
    )
