"""A run as TOML, and running it. `scenarios/` has commented examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from mycel.config.loader import Where, read_toml
from mycel.config.validation_errors import complaint
from mycel.sim.workloads.synthetic import Synthetic, as_jobs, generate
from mycel.topology.network_graph import Topology
from mycel.topology.spec import TopologySpec, make

from .entities import NS_PER_MS, NS_PER_S, Capacity, Job
from .errors import ScenarioError
from .fault_plan import Fault, FaultKind
from .policies import policy_named
from .reference_engine import Engine
from .results.run_results import Outcome, from_engine, from_fast
from .run_records import Settings
from .sim_network import ConstantNetwork, Network, RoutedNetwork
from .workloads import traces

SCENARIOS: Final = Path(__file__).parent / "scenarios"
Progress = Callable[[int, int], None]
T = TypeVar("T")
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class ClusterSpec(Section, frozen=True, kw_only=True):
    servers: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """With a topology, it has as many as that."""
    cores: Annotated[int, msgspec.Meta(ge=0)] = 1
    memory_mib: Annotated[int, msgspec.Meta(ge=0)] = 0
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    gpu_model: str = ""
    gpu_servers: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many of the servers have them, evenly spread; else all."""
    nodes: str | None = None
    """A file in openb's form, instead of all of the above."""
    schedulers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class NetworkSpec(Section, frozen=True, kw_only=True):
    one_way_ms: NotNegative = 0.5
    """Between any two places; with a topology, what each message costs beside the way."""


class TraceSpec(Section, frozen=True, kw_only=True):
    kind: Literal["swf", "philly", "azure", "openb"]
    path: str
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Only the first so many jobs."""
    context_token_ms: NotNegative = 0.2
    generated_token_ms: NotNegative = 20.0


class EventSpec(Section, frozen=True, kw_only=True):
    at_s: NotNegative
    kind: Literal["fail", "return", "slow"]
    server: int | None = None
    scheduler: int | None = None
    node: str | None = None
    link: tuple[str, str] | None = None
    servers_share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """So many of the servers, drawn by the seed, each at its own moment until `until_s`."""
    until_s: NotNegative | None = None
    slowdown: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 2.0


class RunSpec(Section, frozen=True, kw_only=True):
    seed: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    seeds: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    load: Annotated[float, msgspec.Meta(gt=0, le=100)] = 0.8
    engine: Literal["auto", "fast", "reference"] = "auto"
    warm_up_s: NotNegative = 0.0
    sample_s: NotNegative = 0.0
    detection_ms: NotNegative = 500.0
    keeps_progress: bool = False


class Scenario(Section, frozen=True, kw_only=True):
    title: str = ""
    cluster: ClusterSpec = ClusterSpec()
    network: NetworkSpec = NetworkSpec()
    topology: TopologySpec | None = None
    policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"name": "homes"})
    workload: dict[str, Any]
    run: RunSpec = RunSpec()
    events: tuple[EventSpec, ...] = ()


class Loaded:
    """A scenario that was read and checked whole."""

    def __init__(self, path: Path, scenario: Scenario, where: Where) -> None:
        self.path, self.scenario, self._where = path, scenario, where
        self.workload = self._read_workload()
        policy = scenario.policy.get("name")
        if not isinstance(policy, str):
            raise ScenarioError(f'{where(("policy",))}: [policy] needs a name, such as "homes"')
        self.policy = policy
        self.options(policy)
        self._check_events()
        if scenario.topology is not None:
            make(scenario.topology, path.parent)  # a bad one is refused before anything runs

    def _read_workload(self) -> Synthetic | TraceSpec:
        raw = self.scenario.workload
        kind = raw.get("kind", "synthetic")
        if kind not in ("synthetic", "swf", "philly", "azure", "openb"):
            raise ScenarioError(
                f"{self._where(('workload', 'kind'))}: workload.kind: {kind!r} is not one of "
                "synthetic, swf, philly, azure, openb"
            )
        if kind == "synthetic":
            return _convert("workload", raw, Synthetic, self._where)
        return _convert("workload", raw, TraceSpec, self._where)

    def _check_events(self) -> None:
        for number, event in enumerate(self.scenario.events):
            named = [
                one
                for one in (
                    event.server,
                    event.scheduler,
                    event.node,
                    event.link,
                    event.servers_share,
                )
                if one is not None
            ]
            if len(named) != 1:
                raise ScenarioError(
                    f"{self._where(('events', str(number)))}: an event names one server, "
                    f"scheduler, node or link, and this one names {len(named)}"
                )

    def run(
        self,
        *,
        policy: str | None = None,
        seed: int | None = None,
        load: float | None = None,
        progress: Progress | None = None,
    ) -> tuple[Outcome, Topology | None]:
        """One run. The arguments replace what the scenario says."""
        return _Runner(self, policy or self.policy, seed, load).run(progress)

    def options(self, policy: str) -> Any:
        """The table [policy] belongs to the scenario's own policy; others get their defaults."""
        kind = policy_named(policy)
        if policy != self.policy:
            return kind.options_type()
        raw = {key: value for key, value in self.scenario.policy.items() if key != "name"}
        return _convert("policy", raw, kind.options_type, self._where)


def load_scenario(path: Path) -> Loaded:
    content, where = read_toml(path)
    try:
        scenario = msgspec.convert(content, Scenario)
    except msgspec.ValidationError as error:
        raise complaint(str(error), content, where, Scenario) from None
    return Loaded(path, scenario, where)


def with_trace(loaded: Loaded, trace: Path) -> Loaded:
    """The same scenario with a trace for its work. The file's name tells its form."""
    name = trace.name.lower()
    forms = {"swf": "swf", "philly": "philly", "azure": "azure", "openb": "openb"}
    kind = next((form for word, form in forms.items() if word in name), None)
    if kind is None:
        raise ScenarioError(f"{trace}: the name of a trace has one of {', '.join(forms)} in it")
    workload = {"kind": kind, "path": str(trace.resolve())}
    scenario = msgspec.structs.replace(loaded.scenario, workload=workload)
    return Loaded(loaded.path, scenario, lambda _: str(loaded.path))


def _convert(section: str, raw: dict[str, Any], kind: type[T], where: Where) -> T:
    """With the section around it, so that a complaint names it."""
    outer = msgspec.defstruct("Outer", [(section, kind)], forbid_unknown_fields=True)
    content = {section: raw}
    try:
        found: T = getattr(msgspec.convert(content, outer), section)
    except msgspec.ValidationError as error:
        raise complaint(str(error), content, where, outer) from None
    return found


class _Runner:
    def __init__(self, loaded: Loaded, policy: str, seed: int | None, load: float | None) -> None:
        self.loaded, self.policy = loaded, policy
        self.scenario = loaded.scenario
        self.seed = self.scenario.run.seed if seed is None else seed
        self.load = self.scenario.run.load if load is None else load
        self.topology = (
            None
            if self.scenario.topology is None
            else make(self.scenario.topology, loaded.path.parent)
        )
        self.capacities = self._capacities()
        self.options = loaded.options(policy)

    def run(self, progress: Progress | None) -> tuple[Outcome, Topology | None]:
        wanted = self.scenario.run.engine
        obstacle = self._obstacle()
        if wanted == "fast" and obstacle:
            raise ScenarioError(f'engine = "fast" cannot be: {obstacle}; use "auto"')
        outcome = self._reference(progress) if obstacle or wanted == "reference" else self._fast()
        warm_up_ns = round(self.scenario.run.warm_up_s * NS_PER_S)
        return replace(outcome, warm_up_ns=warm_up_ns), self.topology

    def _obstacle(self) -> str:
        """Why the fast engine cannot run it, or nothing."""
        from mycel.sim.fast.fast_engine import FAST_POLICIES

        workload = self.loaded.workload
        if self.policy not in FAST_POLICIES:
            return f"policy {self.policy!r} has no kernel"
        if reason := getattr(self.options, "needs_reference", ""):
            return str(reason)
        if not isinstance(workload, Synthetic) or not workload.is_plain:
            return "its tasks are not plain slots"
        if self.topology is not None or self.scenario.events or self.scenario.run.sample_s:
            return "it has a topology, events or samples"
        if self.scenario.cluster.nodes is not None:
            return "its servers differ"
        return ""

    def _capacities(self) -> list[Capacity]:
        cluster = self.scenario.cluster
        if cluster.nodes is not None:
            found = traces.read_openb_nodes(self._data(cluster.nodes))
            if self.topology is not None and len(found) != len(self.topology.servers):
                raise ScenarioError(
                    f"{cluster.nodes} has {len(found)} servers, the topology "
                    f"{len(self.topology.servers)}"
                )
            return found
        count = cluster.servers if self.topology is None else len(self.topology.servers)
        one = Capacity(cluster.cores * 1000, cluster.memory_mib, cluster.gpus, cluster.gpu_model)
        with_gpus = count if cluster.gpu_servers is None else min(cluster.gpu_servers, count)
        capacities = [Capacity(one.cores_milli, one.memory_mib)] * count
        for number in range(with_gpus):
            capacities[number * count // with_gpus] = one
        return capacities

    def _data(self, name: str) -> Path:
        from mycel.sim.workloads.trace_files import find

        return find(name, self.loaded.path.parent)

    @property
    def slots(self) -> int:
        return sum(one.cores_milli for one in self.capacities) // 1000

    @property
    def entries(self) -> int:
        if policy_named(self.policy).jobs_arrive_at == "servers":
            return len(self.capacities)
        return self.scenario.cluster.schedulers

    def _fast(self) -> Outcome:
        from mycel.sim.fast.fast_engine import Cluster, run_fast

        assert isinstance(self.loaded.workload, Synthetic), "an obstacle otherwise"
        cluster = Cluster(
            servers=len(self.capacities),
            slots=self.scenario.cluster.cores,
            one_way_ns=round(self.scenario.network.one_way_ms * NS_PER_MS),
            schedulers=self.scenario.cluster.schedulers,
            seed=self.seed,
        )
        if not cluster.slots:
            raise ScenarioError("servers without cores cannot run tasks: raise cluster.cores")
        work = generate(self.loaded.workload, self.load, self.slots, self.entries, self.seed)
        result = run_fast(cluster, work, self.policy, self.options)
        return from_fast(
            result, work, policy=self.policy, seed=self.seed, load=self.load, slots=self.slots
        )

    def _reference(self, progress: Progress | None) -> Outcome:
        run = self.scenario.run
        engine = Engine(
            self.capacities,
            self._jobs(),
            policy_named(self.policy),
            self.options,
            network=self._network(),
            settings=Settings(
                seed=self.seed,
                schedulers=self.scenario.cluster.schedulers,
                detection_ns=round(run.detection_ms * NS_PER_MS),
                keeps_progress=run.keeps_progress,
                sample_ns=round(run.sample_s * NS_PER_S),
            ),
            faults=self._faults(),
        )
        interrupted = False
        try:
            engine.run(progress)
        except KeyboardInterrupt:
            interrupted = True
        load = self.load if isinstance(self.loaded.workload, Synthetic) else None
        return from_engine(engine, load=load, interrupted=interrupted)

    def _jobs(self) -> list[Job]:
        spec = self.loaded.workload
        if isinstance(spec, Synthetic):
            slots = max(1, round(self.slots / spec.cores))
            work = generate(spec, self.load, slots, self.entries, self.seed)
            return as_jobs(spec, work, self.seed)
        path = self._data(spec.path)
        if spec.kind == "swf":
            return traces.read_swf(path, spec.limit)
        if spec.kind == "philly":
            return traces.read_philly(path, spec.limit)
        if spec.kind == "openb":
            return traces.read_openb_pods(path, spec.limit)
        return traces.read_azure(
            path,
            spec.limit,
            context_token_ms=spec.context_token_ms,
            generated_token_ms=spec.generated_token_ms,
        )

    def _faults(self) -> list[Fault]:
        faults: list[Fault] = []
        random = Random(self.seed)
        for event in self.scenario.events:
            if event.servers_share is None:
                faults.append(_fault(event))
                continue
            servers = len(self.capacities)
            until_s = event.at_s if event.until_s is None else max(event.at_s, event.until_s)
            for server in random.sample(range(servers), round(event.servers_share * servers)):
                at_s = random.uniform(event.at_s, until_s)
                one = msgspec.structs.replace(event, at_s=at_s, server=server)
                faults.append(_fault(one))
        return faults

    def _network(self) -> Network:
        one_way_ns = round(self.scenario.network.one_way_ms * NS_PER_MS)
        if self.topology is None:
            return ConstantNetwork(one_way_ns)
        return RoutedNetwork(self.topology, self.scenario.cluster.schedulers, one_way_ns)


def _fault(event: EventSpec) -> Fault:
    return Fault(
        at_ns=round(event.at_s * NS_PER_S),
        kind=FaultKind(event.kind),
        server=event.server,
        scheduler=event.scheduler,
        node=event.node,
        link=event.link,
        slowdown=event.slowdown,
    )
