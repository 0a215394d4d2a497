"""Which keys a running node takes over, and which of them change nothing together."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.config import Configuration, load
from mycel.config.conflicts import ineffective
from mycel.config.reload import changes


def configuration(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "mycel.toml"
    path.write_text(text)
    return load(path, {}, {})


def test_what_a_socket_or_an_agreement_depends_on_waits_for_a_restart(tmp_path: Path) -> None:
    before = configuration(tmp_path, "")
    after = configuration(
        tmp_path,
        """
        [scheduler]
        max_concurrent_tasks = 3
        lease_seconds = 20
        [scheduler.api]
        bind_address = "127.0.0.1:9"
        max_request_size = "1MB"
        [swarm]
        name = "other"
        """,
    )
    changed = changes(before, before, after, "scheduler")
    assert changed.applied == [
        "scheduler.api.max_request_size",
        "scheduler.max_concurrent_tasks",
    ]
    assert changed.needs_restart == [
        "scheduler.api.bind_address",
        "scheduler.lease_seconds",
        "swarm.name",
    ]


def test_a_worker_is_not_told_of_what_only_schedulers_read(tmp_path: Path) -> None:
    before = configuration(tmp_path, "")
    after = configuration(tmp_path, "[scheduler]\ntask_timeout = 3\nlease_seconds = 20\n")
    changed = changes(before, before, after, "worker")
    assert changed.applied == []
    assert changed.needs_restart == ["scheduler.lease_seconds"]


@pytest.mark.parametrize(
    ("role", "read"),
    [
        ("gateway", ["gateway.max_circuits"]),
        ("worker", ["worker.name"]),
        ("scheduler", ["scheduler.api.bind_address"]),
        ("node", ["scheduler.api.bind_address", "worker.name"]),
    ],
)
def test_a_role_is_not_told_of_what_others_read(tmp_path: Path, role: str, read: list[str]) -> None:
    before = configuration(tmp_path, "")
    text = '[gateway]\nmax_circuits = 3\n[worker]\nname = "a"\n'
    after = configuration(tmp_path, f'{text}[scheduler.api]\nbind_address = "127.0.0.1:9"\n')
    assert changes(before, before, after, role).needs_restart == read


def test_what_only_commands_read_needs_no_restart(tmp_path: Path) -> None:
    before = configuration(tmp_path, "")
    after = configuration(tmp_path, '[clusters]\nselection = "lowest-cost"')
    changed = changes(before, before, after, "scheduler")
    assert (changed.applied, changed.needs_restart) == ([], [])


def test_nothing_changed_is_nothing_to_do(tmp_path: Path) -> None:
    one = configuration(tmp_path, "[scheduler]\ntask_timeout = 3\n")
    assert changes(one, one, one, "scheduler").applied == []


def test_what_waits_for_a_restart_is_not_forgotten(tmp_path: Path) -> None:
    started = configuration(tmp_path, "")
    before = configuration(tmp_path, "[scheduler]\ntask_timeout = 3\nlease_seconds = 20\n")
    again = changes(started, before, before, "scheduler")
    assert (again.applied, again.needs_restart) == ([], ["scheduler.lease_seconds"])
    undone = changes(started, before, started, "scheduler")
    assert (undone.applied, undone.needs_restart) == (["scheduler.task_timeout"], [])


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (
            "[scheduler.fault_tolerance]\nenable_retries = false\nmax_retries = 5",
            "scheduler.fault_tolerance.max_retries",
            "enable_retries is false",
        ),
        (
            "[scheduler.retry]\nmax_attempts = 9",
            "scheduler.retry.max_attempts",
            "allows only 4 attempts",
        ),
        (
            "[scheduler.retry]\nmax_attempts = 2\n[scheduler.fault_tolerance]\nmax_retries = 5",
            "scheduler.fault_tolerance.max_retries",
            "allows only 1 retries",
        ),
        (
            "[scheduler.retry]\nmax_attempts = 1\nbackoff_base = 1",
            "scheduler.retry.backoff_base",
            "only one attempt",
        ),
        (
            "[scheduler.retry]\nbackoff_base = 90",
            "scheduler.retry.backoff_base",
            "bounds every delay",
        ),
        (
            (
                "[scheduler.retry]\nbackoff_max = 9\n"
                '[scheduler.fault_tolerance]\nretry_backoff = "constant"'
            ),
            "scheduler.retry.backoff_max",
            "never grows",
        ),
        (
            (
                '[scheduler]\nselection_algorithm = "round-robin"\n'
                '[scheduler.load_balancing]\nload_metric = "cpu-usage"'
            ),
            "scheduler.load_balancing.load_metric",
            "in turn",
        ),
        (
            (
                '[scheduler]\nselection_algorithm = "performance-aware"\n'
                '[scheduler.load_balancing]\nstrategy = "random"\nload_metric = "cpu-usage"'
            ),
            "scheduler.load_balancing.load_metric",
            "looks at load",
        ),
        (
            "[scheduler.retry]\npoison_attempts = 4",
            "scheduler.retry.poison_attempts",
            "only 3 attempts",
        ),
        (
            "[swarm.discovery]\ngossip = false\n[scheduler]\nannounce_interval = 4",
            "scheduler.announce_interval",
            "gossip is false",
        ),
        (
            "[swarm.discovery]\ndht = false\n[scheduler]\ndiscovery_interval = 4",
            "scheduler.discovery_interval",
            "dht is false",
        ),
    ],
)
def test_keys_without_effect_are_named(tmp_path: Path, text: str, key: str, reason: str) -> None:
    found = [line for line in ineffective(configuration(tmp_path, text)) if f" {key} " in line]
    assert len(found) == 1
    assert reason in found[0]
    assert "mycel.toml, line" in found[0]


def test_defaults_are_never_complained_of(tmp_path: Path) -> None:
    text = "[scheduler.fault_tolerance]\nenable_retries = false\n"
    assert ineffective(configuration(tmp_path, text)) == []
