"""What goes wrong during a run: servers, switches and links fail and return; some are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from .entities import Server
from .errors import ScenarioError
from .sim_network import RoutedNetwork

if TYPE_CHECKING:
    from .reference_engine import Engine


class FaultKind(StrEnum):
    FAIL = "fail"
    RETURN = "return"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Of a server or scheduler by number, of a node by name, or of the link between two nodes."""

    at_ns: int
    kind: FaultKind
    server: int | None = None
    scheduler: int | None = None
    node: str | None = None
    link: tuple[str, str] | None = None
    slowdown: float = 1.0


class Faults:
    def __init__(self, engine: Engine, faults: Sequence[Fault]) -> None:
        self._engine: Final = engine
        self._faults: Final = faults
        self.is_quiet: Final = not faults
        """With no faults to come, messages need no second look when they arrive."""
        network = engine.network
        self._network = network if isinstance(network, RoutedNetwork) else None
        for fault in faults:
            self._check(fault)

    def schedule(self) -> None:
        for fault in self._faults:
            self._engine.after(fault.at_ns, self._apply, fault)

    def _check(self, fault: Fault) -> None:
        if fault.server is not None:
            if not 0 <= fault.server < len(self._engine.servers):
                raise ScenarioError(
                    f"an event names server {fault.server}; the last is number "
                    f"{len(self._engine.servers) - 1}"
                )
        elif fault.scheduler is not None:
            if not 0 <= fault.scheduler < self._engine.schedulers:
                raise ScenarioError(
                    f"an event names scheduler {fault.scheduler}; the last is number "
                    f"{self._engine.schedulers - 1}"
                )
            if fault.kind is FaultKind.SLOW:
                raise ScenarioError('a scheduler cannot be slow: kind is "fail" or "return"')
        elif self._network is None:
            raise ScenarioError("an event names a node or link, and there is no [topology]")
        elif fault.node is not None:
            self._network.topology.node(fault.node)
        else:
            assert fault.link is not None, "a fault names what it strikes"
            first, second = (self._network.topology.node(name) for name in fault.link)
            self._network.topology.link_between(first, second)

    def _apply(self, fault: Fault) -> None:
        engine = self._engine
        what = fault.node or ("–".join(fault.link) if fault.link else f"server {fault.server}")
        if fault.scheduler is not None:
            what = f"scheduler {fault.scheduler}"
        verb = {"fail": "fails", "return": "returns", "slow": "is slow"}[fault.kind]
        engine.marks.append((engine.now, f"{what} {verb}"))
        if fault.server is not None:
            self._strike(engine.servers[fault.server], fault)
        elif fault.scheduler is not None:
            if fault.kind is FaultKind.FAIL:
                engine.fail_scheduler(fault.scheduler)
            else:
                engine.return_scheduler(fault.scheduler)
        elif fault.link is not None:
            self._strike_link(fault)
        else:
            self._strike_node(fault)

    def _strike_node(self, fault: Fault) -> None:
        assert self._network is not None, "it was checked"
        assert fault.node is not None, "it names a node"
        topology, routes = self._network.topology, self._network.routes
        node = topology.node(fault.node)
        if fault.kind is FaultKind.FAIL:
            routes.fail_node(node)
        elif fault.kind is FaultKind.RETURN:
            routes.return_node(node)
        if topology.nodes[node].is_server:
            self._strike(self._engine.servers[topology.servers.index(node)], fault)

    def _strike_link(self, fault: Fault) -> None:
        assert self._network is not None, "it was checked"
        assert fault.link is not None, "it names a link"
        topology, routes = self._network.topology, self._network.routes
        link = topology.link_between(*(topology.node(name) for name in fault.link))
        if fault.kind is FaultKind.FAIL:
            routes.fail_link(link)
        elif fault.kind is FaultKind.RETURN:
            routes.return_link(link)

    def _strike(self, server: Server, fault: Fault) -> None:
        engine = self._engine
        if fault.kind is FaultKind.SLOW:
            server.slowdown = fault.slowdown
        elif fault.kind is FaultKind.FAIL and server.is_up:
            lost = engine.lose(server)
            server.is_up = False
            engine.after(engine.settings.detection_ns, engine.policy.failed, server, lost)
        elif fault.kind is FaultKind.RETURN and not server.is_up:
            server.is_up = True
            engine.policy.returned(server)
