"""Machines and wires made of network namespaces.

    ┌──────┐ veth ┌─────────────────┐ veth ┌──────┐
    │ host │──────│ router: nft NAT │──────│ hub  │── other routers, gateways
    └──────┘      └─────────────────┘      └──────┘

Everything is named after this process, and removed with its namespaces: a wire whose end is
gone is gone. The kernel's firewall plays the faults: it drops at random, or everything.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_SERIAL: Final = itertools.count()


def why_unavailable() -> str:
    """Empty if namespaces can be made here."""
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} missing: scripts/install-test-tools installs them"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = _unique("try")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    try:
        nft = ["ip", "netns", "exec", name, "nft", "add", "table", "ip", "trial"]
        ruled = subprocess.run(nft, capture_output=True, text=True, check=False)
    finally:
        _run("ip", "netns", "del", name)
    return f"no nftables here: {ruled.stderr.strip()}" if ruled.returncode else ""


class Machine:
    """One namespace."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.name = _unique(label)
        self._wires = itertools.count()
        _run("ip", "netns", "add", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def prefixed(self, *command: str) -> list[str]:
        """The command, inside of this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str) -> str:
        return _run(*self.prefixed(*command))

    def rules(self, text: str) -> None:
        """Adds to the firewall."""
        _run(*self.prefixed("nft", "-f", "-"), given=text)

    def next_interface(self) -> str:
        return f"eth{next(self._wires)}"

    def remove(self) -> None:
        """With every process that is still in it."""
        pids = _run("ip", "netns", "pids", self.name).split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "del", self.name)


class Hub(Machine):
    """What machines are plugged into."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.run("ip", "link", "add", "bridge", "type", "bridge")
        self.run("ip", "link", "set", "bridge", "up")

    def plug(self, machine: Machine, address: str) -> str:
        """Gives the machine a network card on this hub; its name."""
        here, there = self.next_interface(), machine.next_interface()
        wire(self, here, machine, there)
        self.run("ip", "link", "set", here, "master", "bridge")
        machine.run("ip", "addr", "add", f"{address}/24", "dev", there)
        return there


def wire(one: Machine, its_end: str, other: Machine, other_end: str) -> None:
    _run(
        *("ip", "link", "add", "name", its_end, "netns", one.name, "type", "veth"),
        *("peer", "name", other_end, "netns", other.name),
    )
    one.run("ip", "link", "set", its_end, "up")
    other.run("ip", "link", "set", other_end, "up")


class Router(Machine):
    """Between a LAN and the rest: masquerades, and lets in only what belongs to a connection
    from inside. What else comes, it does not answer: a refusal would end what two behind such
    routers open towards each other at the same time."""

    def __init__(self, label: str, outside: Hub, address: str, inside: str) -> None:
        super().__init__(label)
        self.inside = inside
        """The LAN's addresses without their last part, such as `10.61.0`."""
        self.lan = Hub(f"{label}lan")
        self._out = outside.plug(self, address)
        self._in = self.lan.plug(self, f"{inside}.1")
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.rules(f"""
            table ip nat {{
                chain out {{
                    type nat hook postrouting priority srcnat;
                    oifname "{self._out}" masquerade
                }}
            }}
            table ip wall {{
                chain faults {{ type filter hook forward priority -10; }}
                chain passing {{
                    type filter hook forward priority filter; policy drop;
                    ct state established,related accept
                }}
                chain own {{
                    type filter hook input priority filter; policy drop;
                    iifname != "{self._out}" accept
                }}
            }}
        """)

    def allow(self, destinations: Sequence[str]) -> None:
        """Whom the LAN may call; nothing else gets out."""
        them = ", ".join(destinations)
        self.rules(f'add rule ip wall passing iifname "{self._in}" ip daddr {{ {them} }} accept')

    def allow_all(self) -> None:
        self.rules(f'add rule ip wall passing iifname "{self._in}" accept')

    def host(self, label: str, last: int) -> Machine:
        machine = Machine(label)
        self.lan.plug(machine, f"{self.inside}.{last}")
        machine.run("ip", "route", "add", "default", "via", f"{self.inside}.1")
        return machine

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing gets through, in either direction, and nobody is told."""
        self.rules("add rule ip wall faults drop")
        try:
            yield
        finally:
            self.rules("flush chain ip wall faults")

    @contextlib.contextmanager
    def dropping_tcp(self) -> Iterator[None]:
        """As a firewall does that lets nothing but datagrams through, and tells nobody."""
        self.rules("add rule ip wall faults meta l4proto tcp drop")
        try:
            yield
        finally:
            self.rules("flush chain ip wall faults")

    @contextlib.contextmanager
    def losing(self, percent: int) -> Iterator[None]:
        """Each packet is lost with this probability, in each direction."""
        self.rules(f"add rule ip wall faults numgen random mod 100 < {percent} drop")
        try:
            yield
        finally:
            self.rules("flush chain ip wall faults")

    @property
    def forwarded_bytes(self) -> int:
        """Through the card on the outside, both ways."""
        folder = Path("/sys/class/net") / self._out / "statistics"
        counts = [self.run("cat", str(folder / name)) for name in ("rx_bytes", "tx_bytes")]
        return sum(int(count) for count in counts)

    def remove(self) -> None:
        self.lan.remove()
        super().remove()


def _unique(label: str) -> str:
    return f"mycel-{os.getpid()}-{next(_SERIAL)}-{label}"


def _run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
