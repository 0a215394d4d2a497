"""A small internet: open machines in the middle, LANs behind routers of their own.

gateway 1 ──┐            ┌── router a ── LAN a: host
            ├── the net ─┤
gateway 2 ──┘            └── router b ── LAN b: host
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .hosts import Host, Owner
from .namespaces import Hub, Machine, Router


class Lan(NamedTuple):
    router: Router
    host: Host


class Internet:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts: list[Host] = []
        self.owner = Owner(folder / "owner")
        self._net = Hub("net")
        self._machines: list[Machine] = [self._net]

    def open_host(self, label: str, last: int) -> Host:
        """Reachable by everybody whose router lets them call it."""
        address = f"10.50.0.{last}"
        machine = Machine(label)
        self._machines.append(machine)
        self._net.plug(machine, address)
        return self._host(label, machine, address)

    def lan(self, label: str, number: int, may_call: list[Host] | None = None) -> Lan:
        """One host behind NAT. `may_call`: nobody else gets its packets; None: anybody."""
        inside = f"10.{60 + number}.0"
        router = Router(f"r{label}", self._net, f"10.50.0.{200 + number}", inside)
        self._machines.append(router)
        if may_call is None:
            router.allow_all()
        else:
            router.allow([host.address for host in may_call])
        machine = router.host(label, 2)
        self._machines.append(machine)
        return Lan(router, self._host(label, machine, f"{inside}.2"))

    def _host(self, label: str, machine: Machine, address: str) -> Host:
        host = Host(machine, address, self._folder / label, self.owner)
        self._hosts.append(host)
        return host

    def remove(self) -> None:
        for host in self._hosts:
            host.stop()
        for machine in reversed(self._machines):
            machine.remove()
