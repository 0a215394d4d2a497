"""Job specs in whatever format they come.

resources: [ … ]       Flux (RFC 14, RFC 25)
resources: { … }       rainbow
nodes, task            Mycel
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from mycel.core.federation.errors import SpecError
from mycel.core.federation.request.request_tree import JobRequest

from .documents import TEXT_BYTES_MAX, Document, check_text, read_document
from .flux_spec import read_flux
from .mycel_spec import read_mycel
from .rainbow_spec import read_rainbow


def read_spec(text: str, *, name: str = "job") -> JobRequest:
    """Raises SpecError with the line of what is wrong."""
    document = _toml(text, name) if name.endswith(".toml") else read_document(name, text)
    value = document.value
    if not isinstance(value, dict):
        raise SpecError(name, "a job spec is a mapping")
    if "resources" not in value and ("nodes" in value or "task" in value):
        return read_mycel(document)
    resources = value.get("resources")
    if isinstance(resources, dict) and value.get("version") == 1:
        return read_rainbow(document)
    if isinstance(resources, dict):
        raise document.wrong(
            ("resources",), "must be a list; with version 1 it may be a map of names (rainbow)"
        )
    return read_flux(document)


def read_spec_file(path: Path) -> JobRequest:
    """Raises SpecError, and OSError if the file cannot be read."""
    if path.stat().st_size > TEXT_BYTES_MAX:
        raise SpecError(str(path), f"is over {TEXT_BYTES_MAX >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(str(path), f"is not UTF-8: {error}") from None
    return read_spec(text, name=path.name)


def _toml(text: str, name: str) -> Document:
    check_text(name, text)
    try:
        return Document(name, text, tomllib.loads(text), {})
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise SpecError(name, f"this is not TOML: {error}") from None
