"""What clients send: the bodies of requests, exactly as the documentation prints them.

Unknown fields are refused, so that a misspelt one is not silently without effect. What a
single task brings as arguments or input stays as it came, undecoded.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from mycel.api.http.problems import Problem
from mycel.core.model.json_depth import DEPTH_MAX, nests_too_deeply
from mycel.core.model.model_program import Kind
from mycel.core.model.stages import Policy

_HUGE: Final = 1 << 62
FUNCTION_BYTES_MAX: Final = 32 << 10
"""Of a function that stands in the job itself, and so in each message that assigns its tasks."""

Amount = Annotated[float, Meta(gt=0, le=1e9)]
Size = Annotated[int, Meta(ge=1, le=_HUGE)] | Annotated[str, Meta(min_length=1, max_length=40)]
"""Bytes, or a number with a unit such as "16GB"."""
Name = Annotated[str, Meta(max_length=256)]
Identifier = Annotated[str, Meta(min_length=1, max_length=1024)]
Deadline = Annotated[float, Meta(gt=0, le=1e9)] | Annotated[str, Meta(min_length=1, max_length=40)]
"""Seconds from now, or a time such as "2030-01-31T12:00:00Z"."""
Count = Annotated[int, Meta(ge=0, le=_HUGE)]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Timeout = Annotated[float, Meta(gt=0, le=1e9)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all bodies."""


class GpusBody(Body, frozen=True):
    count: Amount = 1.0
    model: Name = ""
    memory: Size | None = None


class RequirementsBody(Body, frozen=True):
    cpu_cores: Amount | None = None
    min_memory: Size | None = None
    disk: Size | None = None
    gpu_required: bool = False
    gpus: GpusBody | None = None
    custom: dict[Identifier, Amount] = {}
    labels: dict[Identifier, Name] = {}
    arch: Name = ""
    os: Name = ""
    software: dict[Identifier, Name] = {}

    @property
    def names_resources(self) -> bool:
        named = (self.cpu_cores, self.min_memory, self.disk, self.gpus)
        return any(one is not None for one in named) or self.gpu_required or bool(self.custom)


class RetryBody(Body, frozen=True):
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    on_error: bool = False


class FileBody(Body, frozen=True):
    """An input: a blob by its digest (`tree` if that is a list of files), or a path on a file
    system that workers share."""

    path: Identifier
    digest: Name = ""
    tree: bool = False
    shared: Annotated[str, Meta(max_length=4096)] = ""
    executable: bool = False


class ServeBody(Body, frozen=True):
    """A model that is loaded and kept up: one of `python` and `gguf` says how."""

    name: Identifier
    kind: Kind = "chat"
    python: Identifier | None = None
    """`module:factory`, importable where it runs."""
    gguf: Identifier | None = None
    """The path of a file where it runs."""
    folder: Name = ""
    concurrency: Annotated[int, Meta(ge=1, le=4096)] | None = None
    batch: Annotated[int, Meta(ge=1, le=4096)] = 8
    context: Annotated[int, Meta(ge=1, le=1 << 24)] = 4096
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """0: as many as it reserves cores."""
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1


class CallBody(Body, frozen=True):
    """A function by value, as Python clients send it. Its arguments may be pickled too."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    """For people: `module:function`."""
    python_version: Annotated[str, Meta(pattern=r"^3\.\d{1,3}$")]
    """Of the client; what it pickled is for no other."""
    function: Annotated[bytes, Meta(max_length=FUNCTION_BYTES_MAX)] = b""
    """By cloudpickle, in base64; a longer one is the file `.function` of the code."""
    code: Name = ""
    """The digest of a zip archive with modules that it imports."""


class TaskBody(Body, frozen=True):
    """Exactly one of `model`, `command`, `image` with `command`, `python`, `call` and `serve`; or
    `driver`, which names one that another package brings, and which says itself what the others
    mean to it."""

    model: Identifier | None = None
    input: Raw | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    command: list[str] | str | None = None
    image: Identifier | None = None
    python: Identifier | None = None
    call: CallBody | None = None
    arguments: Raw | UnsetType = UNSET
    name: Name = ""
    requirements: RequirementsBody | None = None
    priority: Priority = 0
    env: dict[Identifier, str] = {}
    timeout: Timeout | None = None
    retry: RetryBody | None = None
    labels: dict[Identifier, Name] = {}
    deadline: Deadline | None = None
    max_cost: Amount | None = None
    require_satisfiable: bool = False
    network: bool = False
    sandbox: Literal["required", "auto"] = "auto"
    inputs: list[FileBody] = []
    outputs: list[Identifier] = []
    keep: Literal["", "worker"] = ""
    driver: Identifier | None = None
    mounts: list[Identifier] = []
    """For `image`: "path:path in the container", with ":ro" to read it only."""
    environment: list[str] | str | None = None
    """Packages for `command` and `python`: a requirements or lock file, as text or in lines."""
    serve: ServeBody | None = None


class SingleTaskBody(TaskBody, frozen=True):
    """A task submitted alone. With the same `id` again it is the same task: a client whose
    connection broke need not know whether the first request arrived."""

    id: str | None = None
    """Of its job, a ULID."""


class OverrideBody(Body, frozen=True):
    """Some tasks that differ: chosen by number (`tasks`) or by parameters (`where`)."""

    tasks: list[Annotated[int, Meta(ge=0, le=_HUGE)]] | str | None = None
    where: dict[Identifier, Any] | None = None
    requirements: RequirementsBody | None = None
    priority: Priority | None = None
    env: dict[Identifier, str] = {}
    timeout: Timeout | None = None
    retry: RetryBody | None = None
    labels: dict[Identifier, Name] = {}


class TasksBody(Body, frozen=True, kw_only=True):
    """How many tasks there are: `count` alike, or one for each element of `arguments`, each
    combination of `matrix`, or each of `inputs`."""

    count: Count | None = None
    arguments: Raw | UnsetType = UNSET
    matrix: dict[Identifier, Any] | None = None
    inputs: list[Any] | None = None
    overrides: list[OverrideBody] = []


class StageBody(TasksBody, frozen=True, kw_only=True):
    name: Identifier
    task: TaskBody
    needs: list[Identifier] = []
    on_failure: Policy = Policy.FAIL


class JobBody(TasksBody, frozen=True, kw_only=True):
    """One task, several of a kind, or stages of them."""

    task: TaskBody | None = None
    stages: list[StageBody] = []
    id: str | None = None
    name: Name = ""
    closed: bool = True


class BatchBody(Body, frozen=True):
    batch: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    count: Count | None = None
    arguments: Raw | UnsetType = UNSET
    stage: Name = ""
    """Which of the job's stages they belong to; the first one if it is not said."""


class MissingBody(Body, frozen=True):
    digests: Annotated[list[Name], Meta(max_length=100_000)]


class RevocationsBody(Body, frozen=True):
    records: Annotated[list[Annotated[bytes, Meta(max_length=1024)]], Meta(max_length=400)]
    """Each signed by the swarm's owner, in base64."""


class InputBody(Body, frozen=True):
    """What `input` may be beside a string."""

    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    json: Raw | UnsetType = UNSET
    blob: str | None = None
    media_type: str | None = None


_decode_task: Final = msgspec.json.Decoder(SingleTaskBody).decode
_decode_job: Final = msgspec.json.Decoder(JobBody).decode
_decode_batch: Final = msgspec.json.Decoder(BatchBody).decode
decode_missing: Final = msgspec.json.Decoder(MissingBody).decode
decode_revocations: Final = msgspec.json.Decoder(RevocationsBody).decode
decode_input: Final = msgspec.json.Decoder(InputBody).decode
decode_items: Final = msgspec.json.Decoder(list[Raw]).decode


_BELOW: Final[dict[str, type[Body]]] = {
    "task": TaskBody,
    "requirements": RequirementsBody,
    "retry": RetryBody,
    "gpus": GpusBody,
    "serve": ServeBody,
    "stages": StageBody,
    "overrides": OverrideBody,
    "inputs": FileBody,
}
"""What stands under these names."""


def fields_at(path: str) -> tuple[str, ...]:
    """Which fields there may be at a place such as `$.stages[...].task`."""
    name = path.rpartition(".")[2].partition("[")[0]
    if name in ("", "$"):
        return (*JobBody.__struct_fields__, *TaskBody.__struct_fields__)
    return _BELOW[name].__struct_fields__ if name in _BELOW else ()


def decode_task(raw: bytes) -> SingleTaskBody:
    body = _decode_task(raw)
    check_nesting(raw)
    return body


def decode_job(raw: bytes) -> JobBody:
    body = _decode_job(raw)
    check_nesting(raw)
    return body


def decode_batch(raw: bytes) -> BatchBody:
    body = _decode_batch(raw)
    check_nesting(raw)
    return body


def check_nesting(raw: bytes) -> None:
    if nests_too_deeply(raw):
        raise Problem(400, f"the body is nested more than {DEPTH_MAX} levels deep")
