"""From a client's body to what the core takes in: every rule that a body has to keep."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mycel.api.http.problems import unprocessable
from mycel.api.routes.service_routes import service_of
from mycel.core.identifiers import JobId, is_job_id
from mycel.core.matching import is_version_range
from mycel.core.model.derivation import BATCH_TASKS_MAX
from mycel.core.model.images import is_image_name
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import GpuRequirement, Pairs, Requirements
from mycel.core.model.work import NO_BOUNDS, OWN_DRIVERS, Bounds, Retry, Work

from .bodies import (
    BatchBody,
    GpusBody,
    JobBody,
    RequirementsBody,
    TaskBody,
    TasksBody,
    decode_items,
)
from .called_functions import called_work, for_python_version
from .model_inputs import files_of_input
from .task_environments import in_environment

ASKED_BYTES_MAX: Final = 128 << 10
"""Of each table that is part of a shape: all together fit into a control message."""
_PAIR_BYTES: Final = 12
"""What a name and its value take there beside their texts."""
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_MOUNT: Final = re.compile(r"/[^:\0\n]*:/[^:\0\n]*(:ro)?")
_PROFILE: Final = Requirements(cpu_cores=1.0)
"""Of a task that names no resources."""
_MODEL_PROFILE: Final = Requirements()
"""Of a model task, whose requirements only filter: the model's own slots are reserved."""
_NO_RETRY: Final = Retry()
_COLLECTIONS: Final = (b"[", b"{")
_KINDS: Final = {
    "process": "command",
    "python": "python",
    "container": "image and command",
    "model": "model and input",
    "service": "serve",
}


class Batch(msgspec.Struct, frozen=True):
    count: int
    arguments: bytes
    """A JSON array of `count` elements, or nothing."""


def specification(body: TaskBody, path: str = "$") -> Specification:
    """What the tasks of this body have in common."""
    asked = body.requirements
    profile = _PROFILE if body.model is None else _MODEL_PROFILE
    if asked is not None:
        profile = _requirements(asked, profile.cpu_cores, f"{path}.requirements")
    work = _work(body, path)
    if body.inputs or body.outputs or body.keep:
        work = _with_files(work, body, path)
    bounds = _bounds(body, profile, path)
    if body.call is not None:
        profile = for_python_version(profile, body.call.python_version)
    if body.environment is not None:
        work, profile = in_environment(work, profile, body.environment, f"{path}.environment")
    return Specification(
        work=work if bounds is NO_BOUNDS else msgspec.structs.replace(work, bounds=bounds),
        requirements=profile,
        priority=body.priority,
        retry=_NO_RETRY
        if body.retry is None
        else Retry(body.retry.max_attempts, body.retry.on_error),
        labels=_pairs(body.labels) if body.labels else (),
        requirements_given=asked is not None and asked.names_resources,
        deadline_at=None if body.deadline is None else _deadline(body.deadline, path),
        max_cost=body.max_cost,
    )


def _with_files(work: Work, body: TaskBody, path: str) -> Work:
    from .named_files import inputs_of, outputs_of  # only where a task has any

    if work.driver == "model":
        raise unprocessable("inputs and outputs belong to tasks that run a program", path)
    return msgspec.structs.replace(
        work, inputs=inputs_of(body, path), outputs=outputs_of(body, path)
    )


def _bounds(body: TaskBody, requirements: Requirements, path: str) -> Bounds:
    """What it named of its own accord: a default or a profile limits nobody."""
    asked = body.requirements
    is_required = body.sandbox == "required"
    if body.model is not None:
        if body.network or is_required:
            detail = "network and sandbox belong to tasks that run a program of yours"
            raise unprocessable(detail, path)
        return NO_BOUNDS
    if asked is None and not body.network and not is_required:
        return NO_BOUNDS
    return Bounds(
        network=body.network,
        sandbox="required" if is_required else "",
        memory_max=requirements.min_memory,
        cores_max=0.0 if asked is None or asked.cpu_cores is None else asked.cpu_cores,
    )


def _deadline(given: float | str, path: str) -> float:
    """Unix time."""
    if not isinstance(given, str):
        return time.time() + given
    try:
        moment = datetime.fromisoformat(given)
    except ValueError as error:
        detail = 'a deadline is seconds from now, or a time such as "2030-01-31T12:00:00Z"'
        raise unprocessable(detail, f"{path}.deadline") from error
    if moment.tzinfo is None:
        raise unprocessable("a deadline needs its time zone, such as Z", f"{path}.deadline")
    return moment.timestamp()


def _work(body: TaskBody, path: str) -> Work:
    env = _environment(body, path) if body.env else ()
    if body.driver is not None:
        return _foreign_work(body, env, path)
    kinds = [
        kind
        for kind, there in (
            ("model", body.model is not None),
            ("command", body.command is not None and body.image is None),
            ("image", body.image is not None),
            ("python", body.python is not None),
            ("call", body.call is not None),
            ("serve", body.serve is not None),
        )
        if there
    ]
    if len(kinds) != 1:
        found = "both " + " and ".join(kinds) if kinds else "none of them"
        raise unprocessable(
            "a task is exactly one of model, command, image with command, python, call, and "
            f"serve; this one has {found}",
            path,
        )
    if body.model is None and (body.input is not UNSET or body.parameters is not UNSET):
        raise unprocessable("input and parameters belong to model tasks", path)
    _check_mounts(body, path)
    if body.python is not None:
        if not _FUNCTION.fullmatch(body.python):
            raise unprocessable('python is "module:function"', f"{path}.python")
        return Work("python", function=body.python, env=env, timeout_seconds=body.timeout)
    if body.call is not None:
        return called_work(body.call, env, body.timeout, f"{path}.call")
    if body.serve is not None:
        return service_of(body, body.serve, env, f"{path}.serve")
    if body.model is not None:
        if body.input is UNSET:
            raise unprocessable("a model task needs input", f"{path}.input")
        given = _raw(body.input)
        return Work(
            "model",
            model=body.model,
            input=given,
            inputs=files_of_input(given, f"{path}.input"),
            parameters=b"" if body.parameters is UNSET else _raw(body.parameters),
            env=env,
            timeout_seconds=body.timeout,
        )
    return Work(
        "process" if body.image is None else "container",
        command=_command(body.command, f"{path}.command"),
        image="" if body.image is None else _image(body.image, f"{path}.image"),
        env=env,
        timeout_seconds=body.timeout,
        mounts=tuple(body.mounts),
    )


def _foreign_work(body: TaskBody, env: Pairs, path: str) -> Work:
    """Of a driver that another package brings: what the fields mean is its own affair."""
    assert body.driver is not None
    if body.driver in OWN_DRIVERS:
        raise unprocessable(
            f"{body.driver} is no driver of another package: leave driver out, and give "
            f"{_KINDS[body.driver]}",
            f"{path}.driver",
        )
    if body.model is not None:
        raise unprocessable("model belongs to model tasks, not to a driver's", f"{path}.model")
    if body.call is not None:
        raise unprocessable("a call is for Mycel's own driver: leave driver out", f"{path}.call")
    return Work(
        body.driver,
        command=() if body.command is None else _command(body.command, f"{path}.command"),
        function=body.python or "",
        image=body.image or "",
        input=b"" if body.input is UNSET else _raw(body.input),
        parameters=b"" if body.parameters is UNSET else _raw(body.parameters),
        env=env,
        timeout_seconds=body.timeout,
    )


def _command(command: list[str] | str | None, path: str) -> tuple[str, ...]:
    if isinstance(command, str):
        raise unprocessable(
            'command is a list of strings such as ["echo", "hello"], not one string; '
            'for a shell write ["sh", "-c", "…"]',
            path,
        )
    if not command or not command[0]:
        raise unprocessable("command needs a program to run", path)
    if any("\0" in word for word in command):
        raise unprocessable("command contains a NUL character", path)
    return tuple(command)


def _image(image: str, path: str) -> str:
    if not is_image_name(image):
        raise unprocessable(f"{image!r} is no name of an image", path)
    return image


def _check_mounts(body: TaskBody, path: str) -> None:
    if body.mounts and body.image is None:
        raise unprocessable("mounts belong to tasks with an image", f"{path}.mounts")
    for place, mount in enumerate(body.mounts):
        if not _MOUNT.fullmatch(mount):
            raise unprocessable(
                'a mount is "/path:/path in the container", and may end in ":ro"',
                f"{path}.mounts[{place}]",
            )


def _environment(body: TaskBody, path: str) -> Pairs:
    for name, value in body.env.items():
        if "=" in name or "\0" in name or "\0" in value:
            raise unprocessable(f"{name!r} is no environment variable", f"{path}.env")
    # Its interpreter is started with them.
    if body.python is not None or body.call is not None:
        _check_asked("the environment of a function", body.env, f"{path}.env")
    return _pairs(body.env)


def _check_asked(what: str, pairs: Mapping[str, object], path: str) -> None:
    """Workers are told it in one message, before the first task."""
    size = sum(len(f"{name}{value}".encode()) + _PAIR_BYTES for name, value in pairs.items())
    if size > ASKED_BYTES_MAX:
        raise unprocessable(
            f"{what} may take {ASKED_BYTES_MAX >> 10} KiB, and has {size:,} bytes", path
        )


def _requirements(body: RequirementsBody, default_cores: float, path: str) -> Requirements:
    for name, asked in (
        ("labels", body.labels),
        ("software", body.software),
        ("custom", body.custom),
    ):
        if asked:
            _check_asked(f"requirements.{name}", asked, f"{path}.{name}")
    return Requirements(
        cpu_cores=default_cores if body.cpu_cores is None else body.cpu_cores,
        min_memory=_size(body.min_memory, f"{path}.min_memory"),
        disk=_size(body.disk, f"{path}.disk"),
        gpus=_gpus(body.gpus, body.gpu_required, f"{path}.gpus"),
        custom=tuple(sorted(body.custom.items())),
        labels=_pairs(body.labels),
        arch=body.arch,
        os=body.os,
        software=_software(body.software, f"{path}.software"),
    )


def _software(asked: dict[str, str], path: str) -> Pairs:
    for name, wanted in asked.items():
        if not is_version_range(wanted):
            raise unprocessable(
                f'the versions of {name} are a list such as ">=12.2,<13", not {wanted!r}', path
            )
    return _pairs(asked)


def _gpus(body: GpusBody | None, required: bool, path: str) -> GpuRequirement | None:
    if body is None:
        return GpuRequirement() if required else None
    if body.count > 1 and body.count != int(body.count):
        raise unprocessable("gpus are whole ones, or a fraction of one", f"{path}.count")
    return GpuRequirement(body.count, body.model, _size(body.memory, f"{path}.memory"))


def _size(size: int | str | None, path: str) -> int:
    if size is None:
        return 0
    if isinstance(size, int):
        return size
    from mycel.config.sizes import parse_size  # only where somebody writes a unit

    try:
        parsed = parse_size(size)
    except ValueError as error:
        raise unprocessable(str(error), path) from error
    if parsed == 0:
        raise unprocessable("nothing of a resource cannot be asked for: leave it out", path)
    return parsed


def _pairs(mapping: dict[str, str]) -> Pairs:
    return tuple(sorted(mapping.items()))


def _raw(value: Raw) -> bytes:
    """A copy of the slice, so that it does not keep the whole body alive."""
    raw = bytes(value)
    if not raw.isascii():
        raw.decode()  # what is not UTF-8 is refused here, and not in somebody's task
    return raw


def single_batch(body: TaskBody, path: str = "$") -> Batch:
    """A task submitted alone is a job of one."""
    if body.arguments is UNSET:
        return Batch(1, b"")
    return Batch(1, b"[" + own_arguments(body, path) + b"]")


def job_batch(body: JobBody, bytes_max: int) -> Batch:
    """The first batch of a job; an open job may come without one."""
    if body.count is None and body.arguments is UNSET:
        if body.closed:
            raise unprocessable(
                "a job needs count, arguments, matrix, inputs or stages, or closed: false", "$"
            )
        return Batch(0, b"")
    assert body.task is not None
    return batch_of(body, body.task, "$", bytes_max)


def batch_of(body: TasksBody, task: TaskBody, path: str, bytes_max: int) -> Batch:
    if task.arguments is UNSET:
        return _batch(body.count, body.arguments, task, path)
    if body.count is None:
        raise unprocessable(
            "arguments stand in the job or in its task, not in both", f"{path}.task"
        )
    batch = _batch(body.count, UNSET, task, path)
    own = own_arguments(task, f"{path}.task")
    if batch.count * (len(own) + 1) > bytes_max:
        raise unprocessable("count times the arguments is too large", f"{path}.task.arguments")
    return Batch(batch.count, b"[" + b",".join([own] * batch.count) + b"]")


def appended_batch(body: BatchBody) -> Batch:
    return _batch(body.count, body.arguments, None, "$")


def own_arguments(body: TaskBody, path: str) -> bytes:
    assert body.arguments is not UNSET
    _check_takes_arguments(body, path)
    raw = _raw(body.arguments)
    if raw[:1] not in _COLLECTIONS:
        raise unprocessable(
            "arguments are a list (positional) or an object (named)", f"{path}.arguments"
        )
    return raw


def _check_takes_arguments(body: TaskBody, path: str) -> None:
    if body.model is not None:
        raise unprocessable("model tasks take input, not arguments", f"{path}.arguments")


def _batch(
    count: int | None, arguments: Raw | UnsetType, task: TaskBody | None, path: str
) -> Batch:
    if (count is None) == (arguments is UNSET):
        raise unprocessable("give either count or arguments", path)
    raw = b""
    if arguments is not UNSET:
        if task is not None:
            _check_takes_arguments(task, path)
        raw = _raw(arguments)
        count = _count_of(raw, path)
    assert count is not None
    where = f"{path}.arguments" if raw else f"{path}.count"
    if count == 0:
        raise unprocessable("a batch needs at least one task", where)
    if count > BATCH_TASKS_MAX:
        raise unprocessable(
            f"a batch holds at most {BATCH_TASKS_MAX} tasks, not {count}: open the job with "
            f'"closed": false, append numbered batches, close it',
            where,
        )
    return Batch(count, raw)


def _count_of(raw: bytes, path: str) -> int:
    """How many argument sets these are; each is a list or an object."""
    if raw[:1] != b"[":
        raise unprocessable("arguments are a list with one element per task", f"{path}.arguments")
    items = decode_items(raw)
    for place, item in enumerate(items):
        if bytes(item)[:1] not in _COLLECTIONS:
            raise unprocessable(
                "each task's arguments are a list (positional) or an object (named)",
                f"{path}.arguments[{place}]",
            )
    return len(items)


def job_id(text: str, path: str = "$.id") -> JobId:
    if not is_job_id(text):
        raise unprocessable("a job's id is a ULID in lower case", path)
    return JobId(text)
