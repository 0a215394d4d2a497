"""What a task runs, and what makes two tasks the same to a provider."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from mycel.core.identifiers import AttemptId
from mycel.core.ranges import (
    MANY,
    Amount,
    Count,
    Data,
    ErrorText,
    ExitCode,
    Finite,
    LongData,
    LongText,
    Memory,
    Name,
    Path,
    Paths,
    Priority,
    Size,
    Word,
)

from .resources import Booking, Pairs, Requirements
from .task_files import Input, Outputs

DEFAULT_USER = "owner"
MODEL_SLOT = "model:"
ENVIRONMENT_KEY = "="
"""Beside the variables of a shape's environment; none of them can have this name."""
SERVICE = "service"
"""The driver of tasks that are to run until somebody cancels them."""
OWN_DRIVERS = ("process", "python", "container", "model", SERVICE)
"""Tasks name no other: what they have says which of them they need."""


class Bounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds a task while it runs. Only what its job named limits it: what a profile
    reserves is a guess, and nobody is killed for using more than a guess."""

    network: bool = False
    """It asks for the network; in a sandbox it has none otherwise."""
    sandbox: Word = ""
    """`required`: it runs in a sandbox or not at all."""
    memory_max: Size = 0
    """Bytes; 0 is no limit but the worker's."""
    cores_max: Amount = 0.0


NO_BOUNDS: Final = Bounds()


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Packages that a task finds beside the standard library."""

    key: Name
    """Of the text: what two tasks share if they share it."""
    text: LongText = ""
    """Of a requirements or lock file."""
    path: Path = ""
    """Where its worker has it; nobody else sets this."""


class PickledCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that its user sent by value. Nobody but the task's own process unpickles it."""

    function: Data = b""
    """By cloudpickle; empty, it is in the code."""
    code: Name = ""
    """The digest of a zip archive with the modules that it imports, if it needs any."""
    path: Path = ""
    """Where its worker has the code; nobody else sets this."""


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the tasks of one job have in common: everything but their arguments.

    `driver` says which of the other fields count: `process` runs `command`, `python` calls
    `function`, `container` runs `command` in `image`, `model` gives `input` to `model`, `service`
    serves `model` as `parameters` say. To a driver that another package brings they mean what
    it says.
    """

    driver: Name
    command: Annotated[tuple[LongText, ...], MANY] = ()
    function: Name = ""
    """`module:function`; with `call`, the name of its function for people."""
    image: Name = ""
    model: Name = ""
    input: Data = b""
    """JSON, for `model`."""
    parameters: Data = b""
    """JSON, for `model`."""
    env: Pairs = ()
    timeout_seconds: Amount | None = None
    bounds: Bounds = NO_BOUNDS
    environment: Environment | None = None
    mounts: Paths = ()
    """For `container`: `path:path in the container`, with `:ro` to read it only."""
    inputs: Annotated[tuple[Input, ...], MANY] = ()
    outputs: Outputs | None = None
    call: PickledCall | None = None
    """For `python`: the function itself, which no worker has to have."""

    @property
    def digests(self) -> list[str]:
        """Of all that its worker has to fetch."""
        named = [one.digest for one in self.inputs if one.digest]
        return [*named, self.call.code] if self.call is not None and self.call.code else named


def work_bytes(work: Work) -> int:
    """What it takes of a message, but for names of fields and the like."""
    texts = [*work.command, *work.mounts]
    for name, value in work.env:
        texts += (name, value)
    for one in work.inputs:
        texts += (one.path, one.digest, one.shared)
    if work.outputs is not None:
        texts += work.outputs.patterns
    size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
    if work.environment is not None:
        size += len(work.environment.text.encode())
    if work.call is not None:
        size += len(work.call.function)
    return size + len(work.input) + len(work.parameters)


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks of one shape are interchangeable to a provider."""

    driver: Name
    requirements: Requirements = Requirements()
    model: Name = ""
    image: Name = ""
    environment: Pairs = ()
    user: Name = DEFAULT_USER
    priority: Priority = 0
    sandbox: Word = ""
    max_cost: Amount | None = None
    """Providers that ask more for a task are left out."""
    network: bool = False


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job says of its own retries; it may lower the limits, not raise them."""

    max_attempts: Count | None = None
    on_error: bool = False
    """A non-zero exit or an exception is worth another attempt."""


def shape_of(
    work: Work,
    requirements: Requirements,
    user: str,
    priority: int,
    max_cost: float | None = None,
) -> Shape:
    # A process brings its environment along; a warm interpreter was started with one.
    environment = work.env if work.driver == "python" else ()
    if work.environment is not None:
        environment = (*environment, (ENVIRONMENT_KEY, work.environment.key))
    return Shape(
        driver=work.driver,
        requirements=requirements,
        model=work.model,
        image=work.image,
        environment=environment,
        user=user,
        priority=priority,
        max_cost=max_cost,
        sandbox=work.bounds.sandbox,
        network=work.bounds.network,
    )


def model_slot(model: str) -> str:
    """The custom resource of which a worker has as much as it takes requests at once."""
    return MODEL_SLOT + model


def reserved(shape: Shape) -> Requirements:
    """What a task of this shape takes from its worker. A model's requirements only filter:
    its memory was taken when it was loaded, and requests share it."""
    if shape.driver != "model":
        return shape.requirements
    return Requirements(custom=((model_slot(shape.model), 1.0),))


class Run(msgspec.Struct, frozen=True):
    """One attempt, as a driver gets it."""

    attempt: AttemptId
    task_id: str
    job_id: str
    number: int
    """The attempt's number as users see it: 1, 2, …"""
    user: str
    work: Work
    arguments: bytes
    """JSON: a list is positional arguments, an object is named ones; empty is none.

    For `process`: a list is appended to the command; an object fills `{name}` in it.
    """
    folder: str = ""
    """A working folder that was made ready for it, and that whoever made it removes; empty, and
    the driver gives it one of its own."""
    scheduler: str = ""
    """Whose it is…"""
    assigned: int = 0
    """…and under which number that scheduler knows it."""
    booking: Booking | None = None
    """The slice of the machine that its lane has: which GPUs, how much of the cores."""
    readable: tuple[str, ...] = ()
    """Paths beside the system and its folder that it may read in a sandbox, …"""
    writable: tuple[str, ...] = ()
    """… and those that it may write."""


FinishedState = Literal["succeeded", "failed", "timed_out", "cancelled"]


class Finished(msgspec.Struct, frozen=True):
    """How an attempt ended, as a driver tells it."""

    attempt: AttemptId
    state: FinishedState
    value: LongData = b""
    """JSON: what the function returned; nothing for processes."""
    exit_code: ExitCode | None = None
    """128 + n after signal n, as shells say it."""
    error: ErrorText = ""
    """One line that says what went wrong; for exceptions the traceback follows it."""
    driver_fault: bool = False
    """The attempt failed for a reason that is not the task's own: worth another attempt."""
    stdout: Data = b""
    stderr: Data = b""
    started_at: Finite = 0.0
    """CLOCK_BOOTTIME, seconds."""
    ended_at: Finite = 0.0
    crashed: bool = False
    """The task took its interpreter along."""
    peak_memory: Memory = 0
    """Bytes that it had resident at the most; 0 if it was not measured."""
    cpu_seconds: Amount = 0.0
    code: Word = ""
    """Why it failed, see `failures`. Empty: as the other fields imply."""
    left: Path = ""
    """The folder in which it left a value that is too long to be told; whoever moves files makes
    it a blob before the end is told."""
