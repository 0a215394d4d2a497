"""Reads the configuration: the file, then environment variables, then flags.

    mycel.toml  <  MYCEL_SCHEDULER__API__BIND_ADDRESS=…  <  flags

Each source is checked by itself first, so that a mistake is reported where it was made.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, get_args, get_origin

import msgspec

from .errors import ConfigurationMalformed, ConfigurationMissing, ConfigurationUnreadable
from .settings import Configuration, Sections
from .toml_lines import lines_of_keys
from .validation_errors import complaint, field_types
from .value_types import AlgorithmName, BindAddress, ByteSize, DriverName, Multiaddr, read_special

VARIABLE_PREFIX: Final = "MYCEL_"
_AT_LINE: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_TEXT_TYPES: Final = (str, ByteSize, BindAddress, Multiaddr, AlgorithmName, DriverName)

Keys = tuple[str, ...]
Where = Callable[[Keys], str]
"""Names the place in which a key was set, for a message."""


def load(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]
) -> Configuration:
    """`overrides` are flags by dotted key, such as `scheduler.api.bind_address`; one that is
    None was not given."""
    data: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if path is not None:
        content, where = read_toml(path)
        _merge(data, origins, content, where)
    for variable, text in sorted(environment.items()):
        if variable.startswith(VARIABLE_PREFIX) and "__" in variable:
            keys = tuple(variable.removeprefix(VARIABLE_PREFIX).lower().split("__"))
            content = _nested(keys, _variable_value(keys, text))
            _merge(data, origins, content, _named(f"environment variable {variable}"))
    for flag, value in overrides.items():
        if value is not None:
            content = _nested(tuple(flag.split(".")), value)
            _merge(data, origins, content, _named(f"flag for {flag}"))
    sections = _convert(data, lambda keys: origins.get(".".join(keys), "the configuration"))
    return Configuration(**msgspec.structs.asdict(sections), origins=origins)


def read_toml(path: Path) -> tuple[dict[str, Any], Where]:
    """The content of the file, and where in it each key is."""
    text = _read(path)
    content, lines = _parse(path, text), lines_of_keys(text)
    return content, lambda keys: f"{path}, line {_line(lines, keys)}"


def _named(place: str) -> Where:
    return lambda keys: place  # noqa: ARG005 – one variable, one flag: whatever the key


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationMissing(
            f"there is no configuration file {path}: create it or correct the path"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationUnreadable(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigurationUnreadable(f"{path} cannot be read: {error.strerror}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT_LINE.fullmatch(str(error))
        if match is None:
            raise ConfigurationMalformed(f"{path}: {error}") from None
        reason, line, column = match.groups()
        raise ConfigurationMalformed(f"{path}, line {line}, column {column}: {reason}") from None


def _line(lines: dict[Keys, int], keys: Keys) -> int:
    while keys and keys not in lines:
        keys = keys[:-1]
    return lines.get(keys, 1)


def _nested(keys: Keys, value: object) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    assert isinstance(value, dict), "a key has at least one part"
    return value


def _variable_value(keys: Keys, text: str) -> object:
    """A TOML value; else, or where a text is wanted anyway, the text as it is."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    if set(parsed) != {"value"}:
        return text
    value = parsed["value"]
    return text if _wants_text(keys) and not isinstance(value, str) else value


def _wants_text(keys: Keys) -> bool:
    kind: Any = Sections
    for key in keys:
        fields = field_types(kind)
        if key not in fields:
            return get_origin(kind) is dict and get_args(kind)[1] is str
        kind = fields[key]
    return get_origin(kind) is Literal or kind in _TEXT_TYPES


def _merge(
    data: dict[str, Any], origins: dict[str, str], content: dict[str, Any], where: Where
) -> None:
    _convert(content, where)
    _merge_below(data, origins, content, where, ())


def _merge_below(
    data: dict[str, Any],
    origins: dict[str, str],
    content: dict[str, Any],
    where: Where,
    above: Keys,
) -> None:
    for key, value in content.items():
        keys = (*above, key)
        if isinstance(value, dict):
            below = data.setdefault(key, {})
            _merge_below(below, origins, value, where, keys)
        else:
            data[key] = value
            origins[".".join(keys)] = where(keys)


def _convert(content: dict[str, Any], where: Where) -> Sections:
    try:
        return msgspec.convert(content, Sections, dec_hook=read_special)
    except msgspec.ValidationError as error:
        _complain(str(error), content, where)


def _complain(message: str, content: dict[str, Any], where: Where) -> NoReturn:
    raise complaint(message, content, where) from None
