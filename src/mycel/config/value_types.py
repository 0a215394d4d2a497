"""Values that are more than their TOML type, and how they are read."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from mycel.core.model.hours import parse as parse_hours
from mycel.swarm.multiaddress import EXAMPLE, objection

from .build_addresses import parse_allowance
from .plugin_names import (
    ALGORITHMS,
    ALGORITHMS_GROUP,
    DRIVERS,
    DRIVERS_GROUP,
    installed_algorithms,
    installed_drivers,
)
from .sizes import parse_size


class ByteSize(int):
    """Written as bytes or with a suffix, such as "10MB"."""


class BindAddress(str):
    """`host:port`, `[::1]:port`; port 0 picks a free one."""

    __slots__ = ()

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])


class Multiaddr(str):
    """Such as `/ip4/127.0.0.1/tcp/4001/p2p/<peer id>`."""

    __slots__ = ()


class AlgorithmName(str):
    """One of ours, or one that is installed beside us."""

    __slots__ = ()


class DriverName(str):
    """One of ours, or one that is installed beside us."""

    __slots__ = ()


class Hours(str):
    """Such as "22:00-07:00", "mon-fri 18:00-08:00" or "sat,sun"."""

    __slots__ = ()


class BuildAddress(str):
    """Such as "10.0.0.0/8", "10.1.2.3:3141" or "index.example.org"."""

    __slots__ = ()


def read_special(kind: type[Any], value: object) -> Any:
    """For msgspec: values that are more than their TOML type."""
    if kind is ByteSize:
        return ByteSize(parse_size(value))
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if kind is BindAddress:
        return _bind_address(value)
    if kind is Multiaddr:
        return _multiaddr(value)
    if kind is Hours:
        parse_hours(value)
        return Hours(value)
    if kind is AlgorithmName:
        return _algorithm(value)
    if kind is DriverName:
        return _driver(value)
    if kind is BuildAddress:
        return _build_address(value)
    raise NotImplementedError(f"no way to read {kind}")


def _driver(text: str) -> DriverName:
    if text not in DRIVERS and text not in installed_drivers():
        quoted = ", ".join(f'"{name}"' for name in (*DRIVERS, *installed_drivers()))
        raise ValueError(
            f'expected {quoted}, or the name of an entry point in "{DRIVERS_GROUP}", got {text!r}'
        )
    return DriverName(text)


def _build_address(text: str) -> BuildAddress:
    parse_allowance(text)
    return BuildAddress(text)


def _algorithm(text: str) -> AlgorithmName:
    if text not in ALGORITHMS and text not in installed_algorithms():
        known = [*ALGORITHMS, *installed_algorithms()]
        quoted = [f'"{name}"' for name in known]
        close = get_close_matches(text, known, 1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        raise ValueError(
            f"expected {', '.join(quoted)}, or the name of an entry point in "
            f'"{ALGORITHMS_GROUP}", got {text!r}{hint}'
        )
    return AlgorithmName(text)


def _bind_address(text: str) -> BindAddress:
    host, colon, port = text.rpartition(":")
    bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or not host or bare_ipv6 or not port.isascii() or not port.isdigit():
        raise ValueError(f'expected "host:port", such as "127.0.0.1:8080", got {text!r}')
    if int(port) > 65535:
        raise ValueError(f"expected a port up to 65535, got {port}")
    return BindAddress(text)


def _multiaddr(text: str) -> Multiaddr:
    wrong = objection(text)
    if wrong:
        raise ValueError(f'expected a multiaddress, such as "{EXAMPLE}", got {text!r}: {wrong}')
    return Multiaddr(text)
