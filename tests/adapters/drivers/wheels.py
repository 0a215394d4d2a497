"""Tiny wheels that tests install: no index, no network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, code: str) -> Path:
    """A package of one module, with a program of the same name that prints its version."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\ndef main(): print(VERSION)\n{code}",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{about}/RECORD", record)
    return path


def requirements(*lines: str) -> str:
    """The wheels are found by `UV_FIND_LINKS`: a text cannot name a folder of the worker's."""
    return "\n".join(("--no-index", *lines, ""))
