"""The environment of a task: packages that its worker installs for it."""

from __future__ import annotations

import msgspec

from mycel.api.http.problems import unprocessable
from mycel.core.model.requirements_text import BadEnvironment, checked_text
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Environment, Work


def in_environment(
    work: Work, requirements: Requirements, given: list[str] | str, path: str
) -> tuple[Work, Requirements]:
    """The work with its packages, and what a worker needs to give it them."""
    from blake3 import blake3  # few tasks need it

    if work.driver not in ("process", "python"):
        raise unprocessable("an environment belongs to command and python", path)
    text = given if isinstance(given, str) else "".join(f"{line}\n" for line in given)
    try:
        checked_text(text)
    except BadEnvironment as error:
        raise unprocessable(str(error), path) from error
    environment = Environment(blake3(text.encode()).hexdigest(), text)
    software = {"uv": ">=0", **dict(requirements.software)}
    return (
        msgspec.structs.replace(work, environment=environment),
        msgspec.structs.replace(requirements, software=tuple(sorted(software.items()))),
    )
