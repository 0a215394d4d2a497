"""Steps of a test of a cluster: jobs one after the other, each with the verdict that is expected.

{"do": "allocate", "jobspec": "job.yaml", "at": 0, "expect": "allocated"}
{"do": "cancel", "job": 1}
{"do": "set-status", "path": "/c/n1", "status": "down"}

The words are those of Fluxion's resource-query. Jobs are named by the number of their step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from mycel.core.federation.errors import SpecError
from mycel.core.federation.graph.calendar import HORIZON_SECONDS
from mycel.core.federation.reasons import Verdict

from .backends import GraphBackend
from .specs.spec_reader import read_spec_file

STEPS_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20
Moment = Annotated[int, msgspec.Meta(ge=0, le=HORIZON_SECONDS)]
Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class Step(msgspec.Struct, frozen=True):
    do: Literal[
        "allocate",
        "allocate_orelse_reserve",
        "allocate_with_satisfiability",
        "satisfiability",
        "cancel",
        "set-status",
    ]
    jobspec: Text = ""
    at: Moment = 0
    """When it happens, in seconds."""
    job: Text | int = ""
    jobid: Text | int = ""
    path: Text = ""
    status: Literal["up", "down"] = "up"
    expect: Text | None = None


class Steps(msgspec.Struct, frozen=True):
    steps: Annotated[list[Step], msgspec.Meta(max_length=STEPS_MAX)]
    policies: list[Text] = []
    """Fluxion's, for which the expected verdicts hold."""

    @property
    def whole_nodes(self) -> bool:
        """Whether nodes are never shared, as under Fluxion's policies of such names."""
        return bool(self.policies) and all("nodex" in one for one in self.policies)


def read_steps(path: Path) -> Steps:
    """JSON lines, or one list, alone or under "steps". Raises SpecError."""
    data = path.read_bytes()
    if len(data) > BYTES_MAX:
        raise SpecError(str(path), f"is over {BYTES_MAX >> 20} MiB")
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    try:
        whole: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = [_line(line, f"{path}, line {number}") for number, line in lines]
    if isinstance(whole, dict):
        whole = whole if "steps" in whole else {"steps": [whole]}
    else:
        whole = {"steps": whole}
    try:
        return msgspec.convert(whole, Steps)
    except msgspec.ValidationError as error:
        raise SpecError(str(path), f"these are no steps: {error}") from None


def _line(line: bytes, place: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(place, f"this is not JSON: {error}") from None


def play(backend: GraphBackend, cluster: str, step: Step, name: str, folder: Path) -> Verdict | str:
    """The verdict, or what was done. Raises FederationError, and OSError for a file."""
    if step.do == "cancel":
        backend.cancel(cluster, str(step.job or step.jobid))
        return "cancelled"
    if step.do == "set-status":
        backend.set_status(cluster, step.path, step.status == "up")
        return step.status
    if not step.jobspec or "\0" in step.jobspec:
        raise SpecError(f"step {name}", f"{step.do!r} needs a 'jobspec'")
    job = read_spec_file(folder / step.jobspec)
    match step.do:
        case "allocate":
            return backend.allocate(cluster, name, job, step.at)
        case "allocate_orelse_reserve":
            return backend.reserve(cluster, name, job, step.at)
        case "allocate_with_satisfiability":
            verdict = backend.allocate(cluster, name, job, step.at)
            never = None if verdict else backend.satisfy(cluster, job)
            return verdict if never is None or never else never
        case "satisfiability":
            return backend.satisfy(cluster, job)
