"""Every setting, with its default. Field names are the keys of the TOML file.

Times are in seconds unless a comment says otherwise. Keys of `[scheduler]` and below that
have no comment of their own are described in the documentation of scheduler nodes.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from mycel.core.model.model_names import objection
from mycel.core.model.model_program import Kind

from .value_types import (
    AlgorithmName,
    BindAddress,
    BuildAddress,
    ByteSize,
    DriverName,
    Hours,
    Multiaddr,
)

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
"""What others are told of: no longer than they take it."""
_FEW: Final = msgspec.Meta(max_length=1000)
Duration = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Node(_Section, frozen=True):
    home: str = ""
    """Empty: `--home`, then `MYCEL_HOME`, then `~/.mycel`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Discovery(_Section, frozen=True):
    """How schedulers and workers find each other; each way suffices."""

    dht: bool = True
    """Workers publish what they can do; schedulers look for what they need."""
    gossip: bool = True
    """Schedulers announce themselves; workers that hear of one connect to it."""
    shard_bits: Annotated[int, msgspec.Meta(ge=0, le=8)] = 2
    """2^bits keys of the DHT share the workers of one kind. The same in the whole swarm; change
    it by one at a time."""

    def __post_init__(self) -> None:
        if not self.dht and not self.gossip:
            raise ValueError("dht and gossip are both off: no worker would ever be found")


class Swarm(_Section, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "mycel"
    listen: tuple[Multiaddr, ...] = (Multiaddr("/ip4/127.0.0.1/tcp/0"),)
    quic: bool = True
    """Listen for QUIC too, at the port of each TCP address."""
    bootstrap: tuple[Multiaddr, ...] = ()
    discovery: Discovery = Discovery()
    mdns: bool = False
    """Find peers of this swarm on the local network, without any bootstrap address."""
    relay: bool = True
    """Be reachable through two gateways, where this node listens on more than loopback."""


class Gateway(_Section, frozen=True):
    services: tuple[str, ...] = ("bootstrap", "dht", "relay", "autonat")
    """What this gateway does for others; further ones by entry points `mycel.gateway_services`."""
    max_reservations: Positive = 4096
    """Nodes that can be reached through this gateway…"""
    max_circuits: Positive = 4096
    """…and connections that go through it at once."""
    max_circuit_hours: Duration = 168.0
    """A relayed connection ends after so long…"""
    max_circuit_size: ByteSize = ByteSize(0)
    """…or after so many bytes each way; 0 is no limit."""
    metrics_address: BindAddress | None = None
    """Where Prometheus finds this gateway's metrics; unset, nowhere. Everybody on this machine
    sees them at a loopback address, elsewhere a user's token is needed."""


class DeclaredGpu(_Section, frozen=True):
    """A GPU that is declared, not detected."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    memory: ByteSize
    vendor: Literal["", "nvidia", "amd", "intel", "apple"] = ""


class Model(_Section, frozen=True):
    """A model that this worker serves: one of `endpoint`, `python` and `gguf` says how."""

    endpoint: Annotated[str, msgspec.Meta(pattern="^(https?://.+|unix:/.+|)$")] = ""
    """The base URL of an OpenAI-compatible server, such as "http://127.0.0.1:11434/v1"."""
    python: Annotated[str, msgspec.Meta(pattern="^([^: ]+:[^: ]+|)$")] = ""
    """`module:factory`: the factory is called once, in a process of its own, and returns a
    callable that gets a list of inputs."""
    gguf: str = ""
    """The path of a GGUF file, for llama.cpp."""
    kind: Kind = "chat"
    key: str = ""
    """That server's API key, if it wants one."""
    served_as: str = ""
    """The name that the server knows the model by; unset, the same."""
    concurrency: Positive | None = None
    """Requests at once. Unset: 1 for an endpoint, 4 for a GGUF file, `batch` for Python."""
    memory: ByteSize = ByteSize(0)
    """What it takes of the worker's memory once it is loaded; for a GGUF file it is derived."""
    gpu_memory: ByteSize = ByteSize(0)
    batch: Positive = 8
    """For Python: so many inputs share a call at the most."""
    context: Positive = 4096
    """For a GGUF file: tokens of each request and its answer."""
    threads: Count = 0
    """For a GGUF file; 0 is as many as the worker has cores."""
    gpu_layers: int = -1
    """For a GGUF file: layers on the GPU, if there is one; -1 is all that fit."""
    folder: str = ""
    """For Python and GGUF: a folder to import from, besides what the worker itself has."""

    def __post_init__(self) -> None:
        given = [key for key in ("endpoint", "python", "gguf") if getattr(self, key)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"needs exactly one of endpoint, python and gguf, has {found}")
        if "@" in self.endpoint.partition("://")[2].partition("/")[0]:
            # It would stand in what is told of a server that does not answer.
            raise ValueError(
                "has a name or a password in its endpoint; a server's secret is its key"
            )


class Environments(_Section, frozen=True):
    """Packages that tasks ask for, installed by uv."""

    max_size: ByteSize = ByteSize(20_000_000_000)
    """Of all environments and the caches that they are built from, on disk. The least recently
    used ones go when all together are bigger."""
    max_environment_size: ByteSize = ByteSize(0)
    """Of one build on disk, what it adds to its user's cache included; 0 is as much as
    `max_size`."""
    max_download: ByteSize = ByteSize(10_000_000_000)
    """What one build may move over the network."""
    build_seconds: Duration = 1800.0
    """A build may take so long."""
    allow_builds: bool = False
    """Install what has no wheel: to build it runs its code, in the sandbox that tasks have."""
    allow_addresses: tuple[BuildAddress, ...] = ()
    """What builds may connect to beside public addresses: networks, addresses or hosts, each with
    `:port` or without, such as "10.0.0.0/8" or "index.example.org:8443"."""


class Containers(_Section, frozen=True):
    """Tasks with an `image`."""

    engine: Literal["auto", "podman", "docker", "off"] = "auto"
    """`auto`: the first of both that works."""
    options: tuple[str, ...] = ()
    """Of the engine itself, before its command, such as "--root=/srv/containers"."""
    run_options: tuple[str, ...] = ()
    """Of each container, such as "--cap-add=CHOWN"."""
    max_processes: Positive = 4096
    """In each container."""


ModelServer = Annotated[str, msgspec.Meta(pattern="^https?://[^/@]+(/.*)?$")]
MODEL_SERVERS: Final = (
    "http://127.0.0.1:11434/v1",
    "http://127.0.0.1:8000/v1",
    "http://127.0.0.1:8080/v1",
)


class Accept(_Section, frozen=True):
    """Whose work a worker takes, beyond what tokens say. Empty takes all; a name may end in
    `*`."""

    owners: tuple[str, ...] = ()
    """Public keys as hex, of the owner or of delegates, that vouch for the user."""
    users: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    hours: tuple[Hours, ...] = ()
    """When it takes new work, such as "mon-fri 22:00-07:00", by its own wall clock; what runs
    then goes on."""


class Price(_Section, frozen=True):
    """What a worker asks for a task, in whatever unit the swarm has agreed on."""

    floor: Amount = 0.0
    """Each attempt costs at least this."""
    cpu_core_hour: Amount = 0.0
    memory_gb_hour: Amount = 0.0
    gpu_hour: Amount = 0.0
    surge: Amount = 0.0
    """How much dearer a full worker is: at 0.5, half as much again."""


class WorkerFiles(_Section, frozen=True):
    cache_size: ByteSize = ByteSize(10_000_000_000)
    """What a worker keeps of the files that tasks have needed; those in use stay."""
    max_blob_size: ByteSize = ByteSize(0)
    """Of one file; 0 is as much as the cache."""
    max_output_size: ByteSize = ByteSize(0)
    """Of all outputs of one task together; 0 is as much as the cache."""
    keep_size: ByteSize = ByteSize(0)
    """Of outputs that stay here because their tasks say so; 0 is half of the cache."""
    keep_hours: Duration = 168.0
    """So long they are safe; then they go as other files do, when room is needed."""


class SchedulerFiles(_Section, frozen=True):
    store_size: ByteSize = ByteSize(50_000_000_000)
    """Files of jobs that are remembered, and of users' uploads; a full store takes no more."""
    max_blob_size: ByteSize = ByteSize(10_000_000_000)
    """Of one file."""
    upload_hours: Duration = 24.0
    """So long an upload waits for a job that needs it."""


class TaskLimits(_Section, frozen=True):
    """Of each task; what a task names of its own (`min_memory`, `disk`) counts where it is less."""

    memory: ByteSize | None = None
    """Unset: as much as the worker has, for all of its tasks together."""
    processes: Positive | None = None
    """Threads count too. Unset: 4096 in the sandbox."""
    file_size: ByteSize | None = None
    """Of a single file."""
    disk: ByteSize | None = None
    """In its working folder."""
    temporary: ByteSize = ByteSize(1_000_000_000)
    """In /tmp and in /dev/shm, which are memory, of a task in the sandbox."""
    wall_time: Duration | None = None
    """Seconds; a task's own `timeout` counts where it is less."""


class Worker(_Section, frozen=True):
    """What is unset is measured."""

    name: Name = ""
    cpu_cores: Duration | None = None
    memory: ByteSize | None = None
    disk: ByteSize | None = None
    labels: Annotated[dict[Name, Name], _FEW] = {}
    gpus: tuple[DeclaredGpu, ...] | None = None
    """Unset: those that are found. A list declares others instead, for trials and tests."""
    models: Annotated[dict[Name, Model], _FEW] = {}
    """By the name that tasks ask for."""
    offer_found_models: bool = False
    """Also those of the model servers that are found on this machine."""
    model_servers: tuple[ModelServer, ...] = MODEL_SERVERS
    """Where they are looked for: as Ollama, vLLM and llama.cpp listen unless told otherwise."""
    model_search_interval: Duration = 15.0
    custom: Annotated[dict[Name, Amount], _FEW] = {}
    """Named resources of your own, and how much there is of each."""
    price: Amount | Price = 0.0
    """What it asks; a number is the floor alone."""
    accept: Accept = Accept()
    environments: Environments = Environments()
    containers: Containers = Containers()
    allow_mounts: tuple[str, ...] = ()
    """Paths of this machine that containers may mount, and all below them."""
    shared_paths: tuple[str, ...] = ()
    """Folders of shared file systems that tasks may name instead of bringing files along."""
    files: WorkerFiles = WorkerFiles()
    sandbox: Literal["auto", "required", "off"] = "auto"
    """`auto`: where bubblewrap works; `required`: the worker does not start without it."""
    allow_network: bool = False
    """Whether tasks in the sandbox that ask for the network get it."""
    readable_paths: tuple[str, ...] = ()
    """What tasks in the sandbox can read beside the system and their working folder."""
    limits: TaskLimits = TaskLimits()
    drivers: tuple[DriverName, ...] | None = None
    """How it runs tasks. Unset: in all ways that work here, those of other packages too."""
    only_when_idle: bool = False
    """Take new work only while the owner is away from the machine."""
    idle_minutes: Amount = 10.0
    """So long nothing was typed or moved."""
    idle_load: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25
    """The share of the cores that other programs may use meanwhile."""
    idle_command: str = ""
    """Decides instead of both: a shell command that ends with 0 while the owner is away."""
    owner_grace_seconds: Amount | None = None
    """When the owner is back, what runs may go on for so long; then it is handed back. Unset, it
    finishes."""
    drain_seconds: Amount = 30.0
    """When it is told to stop, what runs may go on for so long; then it is handed back."""
    metrics_address: BindAddress | None = None
    """As that of `[gateway]`."""

    def __post_init__(self) -> None:
        for name in self.models:
            wrong = objection(name)
            if wrong is not None:
                raise ValueError(f"models: {name!r}: {wrong}")


REQUEST_BYTES_LEAST: Final = 100


class Api(_Section, frozen=True):
    bind_address: BindAddress = BindAddress("127.0.0.1:8080")
    tls_cert: str = ""
    """The path of a certificate, with its chain, in PEM…"""
    tls_key: str = ""
    """…and of its key. With both, the API speaks HTTPS; changed files are read again."""
    max_request_size: ByteSize = ByteSize(10_000_000)
    max_bodies_size: ByteSize = ByteSize(256_000_000)
    """Of all requests that are being read or answered; a quarter of it for one user."""
    max_connections: Annotated[int, msgspec.Meta(ge=16, le=60_000)] = 4096
    """Where there is no room for another, the oldest without a token goes."""
    max_connections_per_address: Positive = 256
    """Without a token, from one address (one /64 network of IPv6); loopback is not limited."""
    head_seconds: Duration = 10.0
    """A TLS handshake, and the head of a request, may take so long."""
    idle_seconds: Duration = 75.0
    """A connection without a request is kept so long; only 5 s when three quarters are taken."""
    stall_seconds: Duration = 30.0
    """A body or an answer that moves less than 1,000 bytes a second for so long is broken off."""
    max_streams: Positive = 512
    """Answers that last: events, followed logs and results…"""
    max_streams_per_user: Positive = 128
    max_waits_per_user: Positive = 1024
    """…and requests of one user that wait for an end, or for a model's answer."""

    def __post_init__(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ValueError(f"{given} is set and {missing} is not: TLS needs both")
        if self.max_request_size < REQUEST_BYTES_LEAST:
            raise ValueError(
                f"max_request_size is at least {REQUEST_BYTES_LEAST} bytes, not "
                f"{int(self.max_request_size)}: no task would be small enough"
            )


class RetryPolicy(_Section, frozen=True):
    max_attempts: Positive = 3
    backoff_base: Duration = 2.0
    backoff_max: Duration = 60.0
    retry_on_timeout: bool = True
    retry_on_worker_failure: bool = True
    poison_attempts: Positive = 5
    """A task that takes its worker or interpreter along so often in a row is stopped."""


class ScoreWeights(_Section, frozen=True):
    """What counts in the algorithm `best`, which adds it up in seconds; 0 leaves it out."""

    price_seconds: Amount = 3600.0
    """So many seconds of waiting are worth one unit of price."""
    contention: Amount = 0.1
    """A task on a machine that others fill takes so much longer, as a share."""
    history: Amount = 1.0
    transfer: Amount = 1.0
    """Of files that the worker does not have."""
    round_trips: Amount = 2.0
    start_seconds: Amount = 0.02
    """To start the first task of a kind on a worker…"""
    prepare_seconds: Amount = 2.0
    """…and if it brings packages or an image along."""
    link_seconds: Amount = 0.2
    """To call a worker without a connection."""
    fragmentation: Amount = 0.2
    """GPUs and memory that the task would leave unused."""


class LoadBalancing(_Section, frozen=True):
    strategy: Literal["least-loaded", "random", "performance"] = "least-loaded"
    load_metric: Literal["task-count", "cpu-usage", "memory-usage"] = "task-count"
    prefer_local_workers: bool = True
    max_network_latency: Duration = 100.0
    """Milliseconds."""
    weights: ScoreWeights = ScoreWeights()


class FaultTolerance(_Section, frozen=True):
    health_check_interval: Duration = 30.0
    health_check_timeout: Duration = 5.0
    max_consecutive_failures: Positive = 3
    """Missed checks, and a worker is dead; attempts that failed by its own fault, and it is
    quarantined."""
    quarantine_seconds: Duration = 10.0
    """Until a task tries a quarantined worker; twice as long each further time, up to 600."""
    enable_retries: bool = True
    max_retries: Count = 3
    retry_backoff: Literal["exponential", "linear", "constant"] = "exponential"


class Scheduler(_Section, frozen=True):
    max_concurrent_tasks: Positive | None = None
    """Unset: bounded by slots."""
    selection_algorithm: AlgorithmName = AlgorithmName("best")
    task_timeout: Duration = 300.0
    """Of `model` tasks; of others only if it was set (`Configuration.is_set`)."""
    discovery_interval: Duration = 60.0
    """How often workers are sought for tasks that lack them."""
    max_linked_workers: Positive = 256
    """Above so many connections, idle workers are hung up; they stay known."""
    max_known_workers: Positive = 100_000
    """Without a connection."""
    announce_interval: Duration = 30.0
    lease_seconds: Duration = 15.0
    heartbeat_seconds: Duration = 2.0
    retention_days: Duration = 7.0
    """Finished jobs are forgotten after so long, or before, if there are too many tasks."""
    retention_tasks: Positive = 1_000_000
    retention_size: ByteSize = ByteSize(10_000_000_000)
    """Results in files that finished jobs may have together."""
    max_queued_tasks: Positive = 1_000_000
    max_batch_tasks: Positive = 10_000
    files: SchedulerFiles = SchedulerFiles()
    api: Api = Api()
    retry: RetryPolicy = RetryPolicy()
    load_balancing: LoadBalancing = LoadBalancing()
    fault_tolerance: FaultTolerance = FaultTolerance()

    def __post_init__(self) -> None:
        if self.lease_seconds < 2.0 * self.heartbeat_seconds:
            raise ValueError(
                f"lease_seconds = {self.lease_seconds:g} is less than twice heartbeat_seconds = "
                f"{self.heartbeat_seconds:g}: registrations are renewed by heartbeats, and would "
                "end before"
            )


class Telemetry(_Section, frozen=True):
    log_file_size: ByteSize = ByteSize(10_000_000)
    """A log file that reaches it is put aside."""
    log_files_kept: Count = 3


class Clusters(_Section, frozen=True):
    """What `mycel cluster` does where its flags say nothing."""

    graph_backend: Name = "memory"
    """What answers for clusters' graphs: `memory`, `networkx` or a plug-in."""
    selection: Name = "random"
    """Which of the clusters that fit gets a job: `random`, `earliest-eta`, `lowest-cost`,
    `weighted`, `constraint` or a plug-in."""
    answer_seconds: Duration = 5.0
    """Clusters that are asked have so long to answer. Batch systems take a second or two to say
    when a job would start."""


class Sections(_Section, frozen=True):
    """The file as a whole."""

    node: Node = Node()
    swarm: Swarm = Swarm()
    gateway: Gateway = Gateway()
    worker: Worker = Worker()
    scheduler: Scheduler = Scheduler()
    telemetry: Telemetry = Telemetry()
    clusters: Clusters = Clusters()


class Configuration(Sections, frozen=True):
    origins: dict[str, str] = {}
    """Where each key that was set comes from, for example
    `{"scheduler.task_timeout": "mycel.toml, line 7"}`."""

    def is_set(self, key: str) -> bool:
        """Whether anybody set the key, such as `scheduler.task_timeout`, or one below it."""
        return any(origin == key or origin.startswith(f"{key}.") for origin in self.origins)
