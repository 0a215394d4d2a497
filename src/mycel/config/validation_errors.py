"""Turns msgspec's refusals into sentences for whoever wrote the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from .errors import BadValue, ConfigurationError, UnknownKey
from .settings import Sections

Keys = tuple[str, ...]

_AT: Final = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)
_PART: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": "nothing",
}


def complaint(
    message: str, content: dict[str, Any], where: Callable[[Keys], str], root: Any = Sections
) -> ConfigurationError:
    """`root` is the type that the content was to become."""
    match = _AT.fullmatch(message)
    assert match is not None, "the pattern accepts every text"
    reason, keys = match[1], _named(_keys(match[2] or ""), content, root)
    if unknown := _UNKNOWN.fullmatch(reason):
        return _unknown_key(keys, unknown[1], where, root)
    if missing := _MISSING.fullmatch(reason):
        return BadValue(f"{where(keys)}: {dotted(keys)} needs a key {missing[1]!r}")
    kind, value = _type_at(keys, root), _value_at(content, keys)
    if (options := _options(kind)) and isinstance(value, str):
        hint = _did_you_mean(value, options)
        expected = ", ".join(f'"{option}"' for option in options)
        reason = f'"{value}" is not one of {expected}{hint}'
    return BadValue(f"{where(keys)}: {dotted(keys)}: {_in_words(reason, value)}")


def dotted(keys: Keys) -> str:
    return ".".join(keys) or "the configuration"


def field_types(kind: Any) -> dict[str, Any]:
    """The keys of a section with their types, bare of annotations; nothing for other types."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {name: _bare(hint) for name, hint in get_type_hints(kind).items()}


def _bare(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        kinds = [k for k in get_args(kind) if k is not type(None)]
        return _bare(kinds[0]) if len(kinds) == 1 else kind
    return kind


def _unknown_key(above: Keys, key: str, where: Callable[[Keys], str], root: Any) -> UnknownKey:
    keys = (*above, key)
    known = sorted(field_types(_type_at(above, root)))
    section = f"[{'.'.join(above)}]" if above else "the configuration"
    hint = _did_you_mean(key, known) or _elsewhere(key, root)
    if not hint and known:
        hint = f"; {section} has {', '.join(known)}"
    return UnknownKey(f"{where(keys)}: {section} has no key {key!r}{hint}")


def _did_you_mean(word: str, known: list[str]) -> str:
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(word.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    close = close or difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f': did you mean "{close[0]}"?' if close else ""


def _elsewhere(key: str, root: Any) -> str:
    """A right key in the wrong section is the commonest mistake after a typing error."""
    for section in _sections(root, ()):
        if key in field_types(_type_at(section, root)):
            return f": it belongs into [{'.'.join(section)}]"
    return ""


def _sections(kind: Any, above: Keys) -> list[Keys]:
    found = [above] if above else []
    for name, below in field_types(kind).items():
        if field_types(below):
            found += _sections(below, (*above, name))
    return found


def _keys(path: str) -> Keys:
    return tuple(match[1] or match[2] for match in _PART.finditer(path))


def _named(keys: Keys, content: dict[str, Any], root: Any) -> Keys:
    """With the key of a free table, for which msgspec only says "...": the first bad one."""
    if "..." not in keys:
        return keys
    place = keys.index("...")
    kind = get_args(_type_at(keys[:place], root))[1]
    for key, value in _value_at(content, keys[:place]).items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return (*keys[:place], key, *keys[place + 1 :])
    return keys[:place]


def _type_at(keys: Keys, root: Any) -> Any:
    kind = root
    for key in keys:
        arguments = get_args(kind)
        if get_origin(kind) is tuple:
            kind = _bare(arguments[0])
        elif get_origin(kind) is dict:
            kind = _bare(arguments[1])
        else:
            kind = field_types(kind).get(key)
    return kind


def _value_at(content: Any, keys: Keys) -> Any:
    for key in keys:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list | tuple) and key.isdigit() and int(key) < len(content):
            content = content[int(key)]
        else:
            return None
    return content


def _options(kind: Any) -> list[str]:
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def _in_words(reason: str, value: object) -> str:
    match = re.fullmatch(r"Expected `([a-z]+)(?: \| null)?`(.*?)(?:, got `([a-z]+)`)?", reason)
    if match is None:
        return reason
    expected, bound, got = match.groups()
    sentence = f"expected {_WORDS.get(expected, expected)}{bound}"
    if got is not None and value is not None:
        return f"{sentence}, got {_WORDS.get(got, got)} ({value!r})"
    return f"{sentence}, got {value!r}" if value is not None else sentence
