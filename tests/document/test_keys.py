"""Each key of the document: changed in a running scheduler, with its effect seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from mycel.config import load
from mycel.core.model.work import Retry

from . import text
from .scene import Scene

KeyTest = Callable[[Path], None]
TESTS: Final[dict[str, KeyTest]] = {}


def key(name: str) -> Callable[[KeyTest], KeyTest]:
    def register(test: KeyTest) -> KeyTest:
        TESTS[f"scheduler.{name}"] = test
        return test

    return register


def setting(name: str, value: str) -> str:
    section, _, key = f"scheduler.{name}".rpartition(".")
    return f"[{section}]\n{key} = {value}\n"


def test_no_key_is_forgotten() -> None:
    assert set(TESTS) | text.API_KEYS == set(text.keys())


def test_the_excerpt_has_all_keys_of_the_document() -> None:
    assert text.keys() == text.keys_of(text.document())


def test_the_documents_file_is_accepted_as_it_is() -> None:
    load(text.HERE / "scheduler_nodes.toml", {}, {})


# Assignments


@key("max_concurrent_tasks")
def _(folder: Path) -> None:
    scene = Scene(folder, setting("max_concurrent_tasks", "3"), cores=(4.0, 4.0))
    scene.submit(30.0, count=8)
    scene.run(2.0)
    assert scene.running == 3
    scene.change(setting("max_concurrent_tasks", "5"))
    scene.run(2.0)
    assert scene.running == 5
    scene.change("")
    scene.run(2.0)
    assert scene.running == 8


@key("task_timeout")
def _(folder: Path) -> None:
    scene = Scene(folder)
    scene.change(setting("task_timeout", "5") + setting("fault_tolerance.max_retries", "0"))
    job = scene.submit(60.0)
    scene.run(4.0)
    assert scene.running == 1
    scene.run(4.0)
    assert scene.state(job) == "failed"
    scene.change("")
    job = scene.submit(60.0)
    scene.run(90.0)
    assert scene.state(job) == "succeeded"


# Selection


def selecting(algorithm: str, more: str = "") -> str:
    return f'[scheduler]\nselection_algorithm = "{algorithm}"\n[scheduler.load_balancing]\n{more}\n'


@key("selection_algorithm")
def _(folder: Path) -> None:
    scene = Scene(folder, selecting("round-robin"), cores=(4.0, 4.0, 4.0), pace=(1.0, 1.0, 0.2))
    scene.submit(500.0, on=0)
    scene.run(1.0)
    assert set(scene.places(6)) == {0, 1, 2}, "in turn, whatever the load"
    scene.change(selecting("capability-based"))
    assert 0 not in scene.places(6), "the least load first"
    scene.submit(0.5, count=60, cores=1.5)  # who is quick is judged by tasks of one shape
    scene.run(60.0)
    scene.change(selecting("performance-aware"))
    assert scene.places(6) == [2] * 6, "the quickest"


@key("load_balancing.strategy")
def _(folder: Path) -> None:
    """Among equals: nobody has a history yet."""
    scene = Scene(
        folder, selecting("performance-aware", 'strategy = "least-loaded"'), cores=(4.0, 4.0)
    )
    scene.submit(5000.0, on=0)
    scene.run(1.0)
    job = scene.submit(0.2, cores=0.7)
    scene.run(1.0)
    assert scene.executions(job)[0].worker == scene.workers[1].peer
    scene = Scene(folder, selecting("performance-aware", 'strategy = "random"'), cores=(9.0, 9.0))
    scene.submit(5000.0, on=0)
    scene.run(1.0)
    assert set(scene.places(12)) == {0, 1}


@key("load_balancing.load_metric")
def _(folder: Path) -> None:
    for metric, place in {"task-count": 0, "cpu-usage": 1}.items():
        changed = selecting("capability-based", f'load_metric = "{metric}"')
        scene = Scene(folder, changed, cores=(4.0, 4.0))
        scene.submit(500.0, on=0, cores=3.0)  # one task, three quarters of the cores
        scene.submit(500.0, on=1, cores=0.5, count=2)  # two tasks, one quarter
        scene.run(1.0)
        assert set(scene.places(3)) == {place}, metric


@key("load_balancing.prefer_local_workers")
def _(folder: Path) -> None:
    scene = Scene(folder, selecting("capability-based"), cores=(4.0, 4.0), local=1)
    assert scene.places(3) == [1, 1, 1]
    scene.change(selecting("capability-based", "prefer_local_workers = false"))
    assert 0 in scene.places(6)


@key("load_balancing.max_network_latency")
def _(folder: Path) -> None:
    scene = Scene(folder, "", cores=(4.0, 1.0))
    scene.scheduler.node.round_trip(scene.workers[0].peer, 0.3)
    scene.submit(500.0, on=1)
    scene.run(1.0)
    job = scene.submit(1.0, cores=0.75)
    scene.run(5.0)
    assert not scene.executions(job), "it waits for the near one"
    scene.change(setting("load_balancing.max_network_latency", "400"))
    scene.run(5.0)
    assert scene.executions(job)[0].worker == scene.workers[0].peer


@key("discovery_interval")
def _(folder: Path) -> None:
    for seconds, soon in {20: True, 300: False}.items():
        changed = (
            setting("discovery_interval", str(seconds)) + "[swarm.discovery]\ngossip = false\n"
        )
        scene = Scene(folder, changed, cores=(1.0, 4.0))
        scene.workers[1].kill()
        scene.run(100.0)
        job = scene.submit(1.0, cores=3.0)
        scene.run(1000.0)  # it looks for such a worker, and finds none
        scene.workers[1].start()
        scene.run(30.0)
        assert bool(scene.executions(job)) is soon, seconds
        scene.run(300.0)
        assert scene.executions(job)


# Retries


def runs(folder: Path, changed: str, *, end: str = "fault", after: float = 300.0) -> list[float]:
    """The pauses between the executions of a task that always ends so."""
    scene = Scene(folder)
    scene.change(changed)
    timeout = 0.5 if end == "timeout" else None
    job = scene.submit(1.0, end="succeed" if timeout else end, timeout_seconds=timeout)
    scene.run(after)
    assert scene.state(job) == "failed"
    return scene.pauses(job)


@key("fault_tolerance.enable_retries")
def _(folder: Path) -> None:
    assert len(runs(folder, "")) == 2
    assert runs(folder, setting("fault_tolerance.enable_retries", "false")) == []


@key("fault_tolerance.max_retries")
def _(folder: Path) -> None:
    assert len(runs(folder, setting("fault_tolerance.max_retries", "1"))) == 1


@key("retry.max_attempts")
def _(folder: Path) -> None:
    more = setting("fault_tolerance.max_retries", "9")
    assert len(runs(folder, more + setting("retry.max_attempts", "5"))) == 4


@key("retry.backoff_base")
def _(folder: Path) -> None:
    [first, second] = runs(folder, setting("retry.backoff_base", "8"))
    assert first == pytest.approx(8.0, rel=0.21)
    assert second == pytest.approx(16.0, rel=0.21)


@key("retry.backoff_max")
def _(folder: Path) -> None:
    changed = "[scheduler.retry]\nbackoff_base = 8\nbackoff_max = 9\n"
    assert runs(folder, changed)[1] == pytest.approx(9.0, rel=0.21)


@key("fault_tolerance.retry_backoff")
def _(folder: Path) -> None:
    for kind, expected in {"constant": [8, 8, 8], "linear": [8, 16, 24]}.items():
        changed = (
            "[scheduler.retry]\nbackoff_base = 8\nmax_attempts = 4\n"
            f'[scheduler.fault_tolerance]\nretry_backoff = "{kind}"\n'
        )
        assert runs(folder, changed) == [pytest.approx(one, rel=0.21) for one in expected]


@key("retry.retry_on_timeout")
def _(folder: Path) -> None:
    assert len(runs(folder, "", end="timeout")) == 2
    assert runs(folder, setting("retry.retry_on_timeout", "false"), end="timeout") == []


@key("retry.retry_on_worker_failure")
def _(folder: Path) -> None:
    for changed, expected in {
        "": "succeeded",
        setting("retry.retry_on_worker_failure", "false"): "failed",
    }.items():
        scene = Scene(folder, cores=(1.0, 1.0))
        scene.change(changed)
        job = scene.submit(5.0)
        scene.run(1.0)
        [execution] = scene.executions(job)
        [worker] = [one for one in scene.workers if one.peer == execution.worker]
        worker.kill()
        scene.run(60.0)
        assert scene.state(job) == expected


# Health


def frozen(folder: Path, settings: str, *, busy: bool) -> tuple[Scene, Callable[[], str]]:
    scene = Scene(folder, settings)
    if busy:
        scene.submit(900.0)
    scene.run(40.0)
    scene.workers[0].freeze()
    return scene, lambda: scene.worker_state(0)


@key("fault_tolerance.health_check_timeout")
def _(folder: Path) -> None:
    """A worker with a lease is suspect after the heartbeat's two seconds and this."""
    scene, state = frozen(folder, setting("fault_tolerance.health_check_timeout", "3"), busy=True)
    scene.run(3.0)
    assert state() == "healthy"
    scene.run(3.0)
    assert state() == "suspect"


@key("fault_tolerance.health_check_interval")
def _(folder: Path) -> None:
    """One without is asked less often."""
    scene, state = frozen(folder, "", busy=False)
    scene.change(setting("fault_tolerance.health_check_interval", "50"))
    scene.run(40.0)
    assert state() == "healthy"
    scene.run(25.0)
    assert state() == "suspect"


@key("fault_tolerance.max_consecutive_failures")
def _(folder: Path) -> None:
    scene, state = frozen(
        folder, setting("fault_tolerance.max_consecutive_failures", "2"), busy=True
    )
    scene.run(9.0)
    assert state() == "suspect"
    scene.run(6.0)
    assert state() == ""


def test_a_task_may_lower_the_limits(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    job = scene.submit(0.1, end="fail", retry=Retry(on_error=True, max_attempts=2))
    scene.run(60.0)
    assert len(scene.executions(job)) == 2


@pytest.mark.parametrize("name", sorted(TESTS))
def test_key_has_its_effect(name: str, tmp_path: Path) -> None:
    TESTS[name](tmp_path)
