"""The submitter's own modules that a function needs: found by their imports, packed as a zip.

What is installed is the worker's affair, or that of the task's environment. What lies in folders
of one's own goes along: the modules that a pickle names, what their code imports, and so on.
"""

from __future__ import annotations

import ast
import dis
import io
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType
from typing import Final

FUNCTION_FILE: Final = ".function"
MODULES_MAX: Final = 5_000
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The archive is named by its content, so that must not change with the time."""
_INSTALLED: Final = ("site-packages", "dist-packages")
_NAMES: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_PREFIXES: Final = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in _NAMES}
    | {str(Path(__file__).resolve().parents[2])}
)

Stamp = tuple[int, int]


class OwnModules:
    """Remembers what it packed, for as long as no file changes."""

    def __init__(self) -> None:
        self._packed: dict[frozenset[str], tuple[dict[str, Path], list[Stamp], bytes]] = {}

    def packed(self, names: Iterable[str]) -> bytes:
        """A zip archive of these modules and of all that they import; nothing if none is own."""
        roots = frozenset(names)
        known = self._packed.get(roots)
        if known is not None and known[1] == _stamps(known[0].values()):
            return known[2]
        files = own_files(roots)
        stamps = _stamps(files.values())
        archive = packed(files) if files else b""
        self._packed[roots] = (files, stamps, archive)
        return archive


@lru_cache(4096)
def imported_names(code: CodeType) -> frozenset[str]:
    """What a function imports when it runs."""
    found: set[str] = set()
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            found.add(str(one.argval))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= imported_names(constant)
    return frozenset(found)


def own_files(names: Iterable[str]) -> dict[str, Path]:
    """By their places in the archive."""
    found: dict[str, Path] = {}
    seen: set[str] = set()
    waiting = list(names)
    while waiting and len(seen) < MODULES_MAX:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append(parent)
        file = _own_file(name)
        if file is None:
            continue
        is_package = file.name == "__init__.py"
        place = name.replace(".", "/")
        found[f"{place}/__init__.py" if is_package else f"{place}.py"] = file
        waiting += _imports(file, name if is_package else parent)
    return found


def packed(files: dict[str, Path]) -> bytes:
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for place in sorted(files):
            archive.writestr(zipfile.ZipInfo(place, _TIME), files[place].read_bytes())
    return kept.getvalue()


def with_function(archive: bytes, function: bytes) -> bytes:
    """The archive, with a function that is too long to stand in its job."""
    kept = io.BytesIO(archive)
    kept.seek(0, io.SEEK_END)
    with zipfile.ZipFile(kept, "a" if archive else "w") as grown:
        grown.writestr(zipfile.ZipInfo(FUNCTION_FILE, _TIME), function)
    return kept.getvalue()


def _own_file(name: str) -> Path | None:
    module = sys.modules.get(name)
    if name == "__main__":
        return None
    origin = getattr(module, "__file__", None)
    if module is None:
        specification = _specification(name)
        origin = None if specification is None else specification.origin
    if not origin or not origin.endswith(".py"):
        return None
    path = Path(origin)
    return path if _is_own(path) and path.is_file() else None


def _is_own(path: Path) -> bool:
    resolved = path.resolve()
    if any(part in _INSTALLED for part in resolved.parts):
        return False
    return not any(Path(prefix) in resolved.parents for prefix in _PREFIXES)


def _specification(name: str) -> ModuleSpec | None:
    """Without importing anything, not even its packages."""
    found: ModuleSpec | None = None
    place: list[str] | None = None
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        full = ".".join(parts[:length])
        try:
            found = PathFinder.find_spec(full, place)
        except (ImportError, ValueError, AttributeError):
            return None
        if found is None:
            return None
        place = list(found.submodule_search_locations or ())
    return found


def _imports(file: Path, package: str) -> Iterator[str]:
    status = file.stat()
    for level, module, names in _import_statements(file, status.st_mtime_ns, status.st_size):
        base = module
        if level:
            parts = package.split(".") if package else []
            kept = parts[: len(parts) - level + 1]
            base = ".".join([*kept, module] if module else kept)
        if base:
            yield base
        for name in names:  # a submodule, perhaps
            yield f"{base}.{name}" if base else name


@lru_cache(10_000)
def _import_statements(
    file: Path, _changed: int, _size: int
) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ()
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, one.name, ()) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(one.name for one in node.names if one.name != "*")
            found.append((node.level, node.module or "", names))
    return tuple(found)


def _stamps(files: Iterable[Path]) -> list[Stamp]:
    found = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            found.append((0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return found
