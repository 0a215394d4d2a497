"""What clients send: the bodies of requests, exactly as the documentation prints them.

Unknown fields are refused, so that a misspelt one is not silently without effect. What a
single task brings as arguments or input stays as it came, undecoded.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

BATCH_TASKS_MAX: Final = 10_000
_HUGE: Final = 1 << 62

Amount = Annotated[float, Meta(ge=0, le=1e9)]
Size = Annotated[int, Meta(ge=0, le=_HUGE)] | Annotated[str, Meta(min_length=1, max_length=40)]
"""Bytes, or a number with a unit such as "16GB"."""
Name = Annotated[str, Meta(max_length=256)]
Identifier = Annotated[str, Meta(min_length=1, max_length=1024)]
Deadline = Annotated[float, Meta(gt=0, le=1e9)] | Annotated[str, Meta(min_length=1, max_length=40)]
"""Seconds from now, or a time such as "2030-01-31T12:00:00Z"."""
Count = Annotated[int, Meta(ge=0, le=_HUGE)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all bodies."""


class GpusBody(Body, frozen=True):
    count: Amount = 1.0
    model: Name = ""
    memory: Size = 0


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


class TaskBody(Body, frozen=True):
    """Exactly one of `model`, `command`, `image` with `command`, and `python`."""

    model: Identifier | None = None
    input: Raw | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    command: list[str] | str | None = None
    image: Identifier | None = None
    python: Identifier | None = None
    arguments: Raw | UnsetType = UNSET
    name: Name = ""
    requirements: RequirementsBody | None = None
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    env: dict[Identifier, str] = {}
    timeout: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    retry: RetryBody | None = None
    labels: dict[Identifier, Name] = {}
    deadline: Deadline | None = None
    max_cost: Amount | None = None
    require_satisfiable: bool = False


class JobBody(Body, frozen=True):
    """`count` tasks alike, or one task for each element of `arguments`."""

    task: TaskBody
    id: str | None = None
    name: Name = ""
    count: Count | None = None
    arguments: Raw | UnsetType = UNSET
    closed: bool = True


class BatchBody(Body, frozen=True):
    batch: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    count: Count | None = None
    arguments: Raw | UnsetType = UNSET


class InputBody(Body, frozen=True):
    """What `input` may be beside a string."""

    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    json: Raw | UnsetType = UNSET
    blob: str | None = None
    media_type: str | None = None


decode_task: Final = msgspec.json.Decoder(TaskBody).decode
decode_job: Final = msgspec.json.Decoder(JobBody).decode
decode_batch: Final = msgspec.json.Decoder(BatchBody).decode
decode_input: Final = msgspec.json.Decoder(InputBody).decode
decode_items: Final = msgspec.json.Decoder(list[Raw]).decode
