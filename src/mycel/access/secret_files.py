"""Small files that only their owner may read: keys and tokens.

A file appears under its name complete or not at all, and an existing one is never
overwritten: it is written beside, synced, and linked to its name, which fails if taken.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from .errors import (
    SecretCorrupt,
    SecretExists,
    SecretExposed,
    SecretMissing,
    SecretUnreadable,
)

SECRET_FILE_BYTES_MAX: Final = 64 << 10
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def create_secret_file(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        write_synced(temporary, content)
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()
        sync_folder(path.parent)
    except FileExistsError:
        raise SecretExists(f"{path} exists already, and is not overwritten") from None
    except FileNotFoundError:
        raise SecretMissing(f"{path} cannot be created: its folder does not exist") from None
    except OSError as error:
        raise SecretUnreadable(f"{path} cannot be created: {error.strerror}") from None


def replace_secret_file(path: Path, content: bytes) -> None:
    """In place of what was there; whoever reads sees the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        write_synced(temporary, content)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SecretUnreadable(f"{path} cannot be written: {error.strerror}") from None


def read_secret_file(path: Path, what: str) -> bytes:
    """`what` names the content for messages, such as "the node's identity key"."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise SecretMissing(f"{what} is missing: there is no file {path}") from None
    except OSError as error:
        raise SecretUnreadable(
            f"{what} cannot be read from {path} ({error.strerror}): it must belong to this user"
        ) from None
    if mode & _OTHERS:
        raise SecretExposed(
            f"{what} in {path} is open to others (mode {stat.S_IMODE(mode):04o}): if nobody can "
            f"have copied it, run chmod 600 {path}, else replace it"
        )
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise SecretCorrupt(f"{path} is too long to be {what}: put the right file there")
    return content


def write_synced(path: Path, content: bytes) -> None:
    """A new file for its owner only, on disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes the names in it durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
