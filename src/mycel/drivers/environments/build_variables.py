"""What a build gets of the worker's own variables: what its owner has set for uv, and no more.

Files that they name (certificates, constraints, `.netrc`) are copied for the build, because the
user that it runs as may not be able to read them where they are. Proxies are not passed on: the
worker's forward proxy uses them, and their passwords stay with it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mycel.config.build_addresses import Allowance

from .public_addresses import allowance_of

_SETTINGS: Final = frozenset(
    {
        "UV_DEFAULT_INDEX",
        "UV_EXCLUDE_NEWER",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_HTTP_CONNECT_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX",
        "UV_INDEX_STRATEGY",
        "UV_INDEX_URL",
        "UV_INSECURE_HOST",
        "UV_NATIVE_TLS",
        "UV_NO_INDEX",
        "UV_OFFLINE",
        "UV_PRERELEASE",
        "UV_REQUEST_TIMEOUT",
        "UV_REQUIRE_HASHES",
        "UV_RESOLUTION",
        "UV_SYSTEM_CERTS",
        "UV_TORCH_BACKEND",
    }
)
_OF_AN_INDEX: Final = re.compile(r"UV_INDEX_\w+_(USERNAME|PASSWORD)")
_FILES: Final = (
    "NETRC",
    "SSL_CERT_FILE",
    "UV_BUILD_CONSTRAINT",
    "UV_CONFIG_FILE",
    "UV_CONSTRAINT",
    "UV_OVERRIDE",
)
_URLS: Final = (
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_FIND_LINKS",
)
_URL: Final = re.compile(r"[a-z+]+://[^\s,\"'\]]+", re.IGNORECASE)
_NOT_FROM_HERE: Final = {
    # A package may come from git: nobody is asked for a password, and no setting is heeded.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    # To the passwords in `~/.netrc` a text could name any host, and it would be sent them.
    "NETRC": os.devnull,
    "UV_KEYRING_PROVIDER": "disabled",
}


class OwnerVariables(msgspec.Struct, frozen=True):
    values: dict[str, str]
    readable: tuple[str, ...]
    """Folders of the worker's machine that uv is to read."""
    allowed: tuple[Allowance, ...]
    """Servers that the owner has named: they may be at private addresses."""


def owner_variables(environment: Mapping[str, str], copies: Path) -> OwnerVariables:
    """`copies` is a folder of the build's. Raises OSError for a file that cannot be read."""
    values = {
        name: value
        for name, value in environment.items()
        if name in _SETTINGS or _OF_AN_INDEX.fullmatch(name)
    }
    sources = [environment[name] for name in _URLS if name in environment]
    for name in _FILES:
        given = environment.get(name, "")
        if given:
            values[name] = " ".join(_copied(Path(one), copies) for one in _paths(name, given))
        if given and name == "UV_CONFIG_FILE":
            sources.append(Path(given).read_text())
    readable = [*_folders(environment.get("UV_FIND_LINKS", "").replace(",", " ").split())]
    certificates = environment.get("SSL_CERT_DIR", "")
    if certificates:
        values["SSL_CERT_DIR"] = certificates
        readable += _folders(certificates.split(os.pathsep))
    urls = (url for source in sources for url in _URL.findall(source))
    allowed = (one for url in urls if (one := allowance_of(url)) is not None)
    return OwnerVariables({**_NOT_FROM_HERE, **values}, tuple(readable), tuple(allowed))


def with_config(environment: Mapping[str, str]) -> dict[str, str]:
    """With the settings file of the owner that uv would find by itself: in the sandbox it would
    not."""
    found = dict(environment)
    home = Path(found.get("XDG_CONFIG_HOME") or Path(found.get("HOME", "/")) / ".config")
    for path in (home / "uv" / "uv.toml", Path("/etc/uv/uv.toml")):
        if not found.get("UV_CONFIG_FILE") and path.is_file() and os.access(path, os.R_OK):
            found["UV_CONFIG_FILE"] = str(path)
    return found


def _paths(name: str, given: str) -> list[str]:
    """uv takes several of some, with blanks between them."""
    several = ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "UV_OVERRIDE")
    return given.split() if name in several else [given]


def _copied(source: Path, copies: Path) -> str:
    if str(source) == os.devnull:
        return os.devnull
    target = copies / f"{len(list(copies.iterdir()))}-{source.name}"
    shutil.copyfile(source, target)
    return str(target)


def _folders(paths: list[str]) -> Iterator[str]:
    """Those outside of /etc, of which builds see a copy."""
    for one in paths:
        path = Path(one.removeprefix("file://"))
        if path.is_absolute() and path.exists() and path.parts[1:2] != ("etc",):
            yield str(path)
