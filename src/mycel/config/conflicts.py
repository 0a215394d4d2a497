"""Keys that were set and change nothing, because of what else is set; and what is risky.

Each rule looks at a valid configuration and says which of the keys that somebody *set* has no
effect and why. Defaults are never complained of.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Final

from .settings import Configuration, RetryPolicy

Rule = Callable[[Configuration], Iterator[tuple[str, str]]]
_RETRY: Final = "scheduler.retry."
_FAULTS: Final = "scheduler.fault_tolerance."
_BALANCING: Final = "scheduler.load_balancing."


def ineffective(configuration: Configuration) -> list[str]:
    """One sentence for each key that has no effect, with the place where it was set."""
    found: dict[str, str] = {}
    for rule in _RULES:
        for key, reason in rule(configuration):
            if configuration.is_set(key):
                found.setdefault(key, reason)
    origins = configuration.origins
    return [
        f"{origins.get(key, 'the configuration')}: {key} has no effect: {reason}"
        for key, reason in found.items()
    ]


def risks(configuration: Configuration) -> list[str]:
    """One sentence for each setting that is valid and dangerous."""
    api = configuration.scheduler.api
    if api.tls_cert or is_loopback(api.bind_address.host):
        return []
    key = "scheduler.api.bind_address"
    where = configuration.origins.get(key, "the configuration")
    text = (
        f"{where}: {key} = {api.bind_address} is reached from other machines without TLS: "
        "everybody on the way can read and use the tokens; set tls_cert and tls_key beside it, "
        "or bind to 127.0.0.1"
    )
    return [text]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _retries_are_off(configuration: Configuration) -> Iterator[tuple[str, str]]:
    if configuration.scheduler.fault_tolerance.enable_retries:
        return
    reason = f"{_FAULTS}enable_retries is false"
    for name in RetryPolicy.__struct_fields__:
        yield f"{_RETRY}{name}", reason
    yield f"{_FAULTS}max_retries", reason
    yield f"{_FAULTS}retry_backoff", reason


def _one_attempt(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Whichever limit is lower leaves nothing to wait for."""
    scheduler = configuration.scheduler
    attempts = scheduler.retry.max_attempts
    retries = scheduler.fault_tolerance.max_retries
    if attempts > 1 + retries:
        yield (
            f"{_RETRY}max_attempts",
            f"{_FAULTS}max_retries = {retries} allows only {1 + retries} attempts",
        )
    elif attempts < 1 + retries:
        yield (
            f"{_FAULTS}max_retries",
            f"{_RETRY}max_attempts = {attempts} allows only {attempts - 1} retries",
        )
    allowed = min(attempts, 1 + retries)
    if scheduler.retry.poison_attempts > allowed:
        yield f"{_RETRY}poison_attempts", f"a task has only {allowed} attempts"
    if allowed == 1:
        reason = "only one attempt is allowed"
        for key in ("backoff_base", "backoff_max", "retry_on_timeout", "retry_on_worker_failure"):
            yield f"{_RETRY}{key}", reason
        yield f"{_FAULTS}retry_backoff", reason


def _backoff(configuration: Configuration) -> Iterator[tuple[str, str]]:
    retry = configuration.scheduler.retry
    if retry.backoff_base >= retry.backoff_max:
        yield (
            f"{_RETRY}backoff_base",
            f"backoff_max = {retry.backoff_max:g} s is not above it and bounds every delay",
        )
    elif configuration.scheduler.fault_tolerance.retry_backoff == "constant":
        yield f"{_RETRY}backoff_max", "a constant delay never grows"


def _selection(configuration: Configuration) -> Iterator[tuple[str, str]]:
    scheduler = configuration.scheduler
    algorithm, strategy = scheduler.selection_algorithm, scheduler.load_balancing.strategy
    if algorithm == "round-robin":
        for name in ("strategy", "load_metric", "prefer_local_workers"):
            yield f"{_BALANCING}{name}", "round-robin takes the workers in turn: nothing ever ties"
    elif algorithm == "performance-aware" and strategy != "least-loaded":
        yield (
            f"{_BALANCING}load_metric",
            f"neither performance-aware nor the strategy {strategy!r} looks at load",
        )


def _discovery(configuration: Configuration) -> Iterator[tuple[str, str]]:
    ways = configuration.swarm.discovery
    if not ways.gossip:
        yield "scheduler.announce_interval", "swarm.discovery.gossip is false"
    if not ways.dht:
        yield "scheduler.discovery_interval", "swarm.discovery.dht is false"


_RULES: Final[tuple[Rule, ...]] = (
    _retries_are_off,
    _one_attempt,
    _backoff,
    _selection,
    _discovery,
)
