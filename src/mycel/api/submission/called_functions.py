"""Functions that clients send by value: what of them a job may say."""

from __future__ import annotations

import msgspec

from mycel.api.http.problems import unprocessable
from mycel.core.model.resources import Pairs, Requirements
from mycel.core.model.task_files import is_digest
from mycel.core.model.work import PickledCall, Work

from .bodies import CallBody


def called_work(body: CallBody, env: Pairs, timeout: float | None, path: str) -> Work:
    if not body.name.isprintable():
        raise unprocessable("the name of a function is printable", f"{path}.name")
    if body.code and not is_digest(body.code):
        raise unprocessable("code is a digest: 'blake3:' and 64 hexadecimal digits", f"{path}.code")
    if not body.function and not body.code:
        raise unprocessable("a call has a function, or code that has it", path)
    call = PickledCall(body.function, body.code)
    return Work("python", function=body.name, call=call, env=env, timeout_seconds=timeout)


def for_python_version(requirements: Requirements, version: str) -> Requirements:
    """Byte code is for one minor version of Python."""
    minor = int(version.partition(".")[2])
    software = dict(requirements.software)
    own = f">=3.{minor},<3.{minor + 1}"
    asked = software.get("python")
    software["python"] = own if asked is None else f"{asked},{own}"
    return msgspec.structs.replace(requirements, software=tuple(sorted(software.items())))
