"""The files that a job names: they have to be here, and its user's, before it is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from mycel.api.authentication import Caller
from mycel.api.backend import Backend, Stopping
from mycel.api.http.problems import unprocessable
from mycel.blobs.errors import BadTree
from mycel.blobs.scheduler_blobs import MissingBlobs, SchedulerBlobs
from mycel.core.events import Submit
from mycel.core.identifiers import JobId
from mycel.core.model.jobs import Specification
from mycel.core.model.task_files import (
    BadFile,
    Input,
    Outputs,
    check_pattern,
    checked,
    files_in,
    mentions_files,
)

from .bodies import TaskBody

OUTPUT_PATTERNS_MAX = 1000
INPUTS_MAX = 10_000
AT_ONCE_BYTES_MAX = 100_000
"""Of arguments that are looked through on the spot."""


def inputs_of(body: TaskBody, path: str) -> tuple[Input, ...]:
    if len(body.inputs) > INPUTS_MAX:
        raise unprocessable(
            f"a task names at most {INPUTS_MAX:,} inputs; a folder is one", f"{path}.inputs"
        )
    found = []
    for place, one in enumerate(body.inputs):
        named = Input(one.path, one.digest, one.tree, one.shared, one.executable)
        try:
            found.append(checked(named))
        except BadFile as error:
            raise unprocessable(str(error), f"{path}.inputs[{place}]") from error
    return tuple(found)


def outputs_of(body: TaskBody, path: str) -> Outputs | None:
    if not body.outputs:
        if body.keep:
            raise unprocessable("keep belongs to outputs, and there are none", f"{path}.keep")
        return None
    for place, pattern in enumerate(body.outputs):
        try:
            check_pattern(pattern.removesuffix("/"))
        except BadFile as error:
            raise unprocessable(str(error), f"{path}.outputs[{place}]") from error
    return Outputs(tuple(body.outputs), body.keep)


def have_files(submit: Submit, raw: bytes) -> bool:
    """Whether there is anything to admit; most jobs have none, and pay a glance for it."""
    return (
        bool(submit.specification.work.digests)
        or submit.derived is not None
        or (mentions_files(raw))
    )


async def admit(backend: Backend, caller: Caller, submit: Submit) -> None:
    """Refuses a job whose files are not here; those of the others stay as long as it does."""
    derived = submit.derived
    if derived is None:
        specifications, encoded = [submit.specification], [submit.arguments]
    else:
        specifications = [specification for specification, _ in derived.groups]
        encoded = [part.arguments for part in derived.parts]
    texts = [*encoded, *_of_sweeps(specifications)]
    names = [*_of_work(specifications), *await _found_in(texts)]
    await admit_names(backend, caller, submit.job_id, names)


async def admit_batch(backend: Backend, caller: Caller, job: JobId, arguments: bytes) -> None:
    await admit_names(backend, caller, job, await _found_in([arguments]))


async def admit_names(
    backend: Backend, caller: Caller, job: JobId, names: list[tuple[str, bool]]
) -> None:
    if not names:
        return
    try:
        await keeping(backend).admit(job, names, caller.sees)
    except (MissingBlobs, BadTree) as error:
        raise unprocessable(str(error), "$") from error


def keeping(backend: Backend) -> SchedulerBlobs:
    if backend.blobs is None:
        raise Stopping("the scheduler is not ready for files")
    return backend.blobs


async def _found_in(encoded: list[bytes]) -> list[tuple[str, bool]]:
    """In a thread if it is much: others must not wait for it."""
    named = [one for one in encoded if mentions_files(one)]
    if sum(map(len, named)) < AT_ONCE_BYTES_MAX:
        return list(_of_arguments(named))
    return await asyncio.to_thread(lambda: list(_of_arguments(named)))


def _of_work(specifications: Iterable[Specification]) -> Iterator[tuple[str, bool]]:
    for specification in specifications:
        for one in specification.work.inputs:
            if one.digest:
                yield one.digest, one.tree
        call = specification.work.call
        if call is not None and call.code:
            yield call.code, False


def _of_sweeps(specifications: Iterable[Specification]) -> Iterator[bytes]:
    for specification in specifications:
        sweep = specification.sweep
        if sweep is not None:
            yield sweep.template
            for axis in sweep.axes:
                yield from axis.values


def _of_arguments(encoded: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    for one in encoded:
        try:
            for file in files_in(msgspec.json.decode(one)):
                yield file.digest, file.tree
        except BadFile as error:
            raise unprocessable(str(error), "$.arguments") from error
