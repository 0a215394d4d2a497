"""What the first task of each group would run, filled in, for whoever asks before submitting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mycel.core.errors import TooLong
from mycel.core.events import Submit
from mycel.core.model.jobs import Specification
from mycel.core.model.stages import NEEDS
from mycel.core.model.substitution import Budget, fill_word, head_of, references, references_in

SAMPLES_MAX: Final = 100
_decode_items: Final = msgspec.json.Decoder(list[Raw]).decode


class SampleAnswer(msgspec.Struct, frozen=True):
    """The first task of a stage, or of those that an override changes."""

    stage: str
    command: tuple[str, ...] | UnsetType = UNSET
    python: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    image: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    parameters: list[str] = []
    """Their names."""
    unfilled: list[str] = []
    """The `${…}` that stay as they are, because nothing gives them a value."""


def samples_of(submit: Submit) -> list[SampleAnswer]:
    return [
        _sample(stage, specification, arguments)
        for _, (stage, specification, arguments) in zip(
            range(SAMPLES_MAX), _firsts(submit), strict=False
        )
    ]


def _firsts(submit: Submit) -> Iterator[tuple[str, Specification, bytes]]:
    derived = submit.derived
    if derived is None:
        if submit.count:
            yield "", submit.specification, _first_of(submit.arguments)
        return
    seen: set[int] = set()
    first = 0
    for part in derived.parts:
        if part.group not in seen:
            seen.add(part.group)
            specification, place = derived.groups[part.group]
            stage = derived.stages[place].name if derived.stages else ""
            sweep = specification.sweep
            arguments = _first_of(part.arguments) if sweep is None else sweep.arguments(first)
            yield stage, specification, arguments
        first += part.count


def _first_of(arguments: bytes) -> bytes:
    return bytes(_decode_items(arguments)[0]) if arguments else b""


def _sample(stage: str, specification: Specification, encoded: bytes) -> SampleAnswer:
    work = specification.work
    arguments = msgspec.json.decode(encoded) if encoded else None
    values: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    command = tuple(_filled(word, values) for word in work.command)
    env = {name: _filled(value, values) for name, value in work.env}
    texts = [*command, *env.values()]
    paths = [path for text in texts for path in references(text)]
    paths += references_in(arguments)
    given = {NEEDS, *(name for name, _ in work.env)}
    sweep = specification.sweep
    names = [axis.name for axis in sweep.axes] if sweep is not None else list(values)
    return SampleAnswer(
        stage,
        command=command or UNSET,
        python=work.function or UNSET,
        model=work.model or UNSET,
        image=work.image or UNSET,
        arguments=Raw(encoded) if encoded else UNSET,
        env=_mentioned(env, work.env) or UNSET,
        parameters=names,
        unfilled=sorted({path for path in paths if head_of(path) not in given}),
    )


def _mentioned(env: dict[str, str], given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of the environment, which may hold secrets, only what parameters fill."""
    return {name: env[name] for name, text in given if env[name] != text}


def _filled(text: str, values: dict[str, Any]) -> str:
    try:
        return fill_word(text, values, Budget())
    except TooLong:
        return text
