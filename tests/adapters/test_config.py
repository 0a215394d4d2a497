"""Configuration: what is accepted, what wins, and how mistakes are reported."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycel.config import Configuration, ConfigurationError, load
from mycel.config.errors import (
    BadValue,
    ConfigurationMalformed,
    ConfigurationMissing,
    ConfigurationUnreadable,
    UnknownKey,
)
from mycel.config.sizes import SIZE_BYTES_MAX, BadSize, format_size, parse_size
from mycel.config.toml_lines import lines_of_keys

DOCUMENT = """
[scheduler]
# Maximum concurrent task assignments
max_concurrent_tasks = 100
selection_algorithm = "performance-aware"  # or "round-robin", "capability-based"
task_timeout = 300
discovery_interval = 60

[scheduler.api]
bind_address = "0.0.0.0:8080"
max_request_size = "10MB"

[scheduler.retry]
max_attempts = 3
backoff_base = 2  # seconds
backoff_max = 60  # seconds
retry_on_timeout = true
retry_on_worker_failure = true

[scheduler.load_balancing]
strategy = "least-loaded"  # or "random", "performance"
load_metric = "task-count"  # or "cpu-usage", "memory-usage"
prefer_local_workers = true
max_network_latency = 100  # milliseconds

[scheduler.fault_tolerance]
health_check_interval = 30  # seconds
health_check_timeout = 5    # seconds
max_consecutive_failures = 3
enable_retries = true
max_retries = 3
retry_backoff = "exponential"
"""

Load = Callable[[str], Configuration]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    def load_it(text: str) -> Configuration:
        path = tmp_path / "mycel.toml"
        path.write_text(text)
        return load(path, {}, {})

    return load_it


def refusal(load_text: Load, text: str, kind: type[ConfigurationError]) -> str:
    with pytest.raises(kind) as caught:
        load_text(text)
    return str(caught.value)


class TestValues:
    def test_defaults(self) -> None:
        configuration = load(None, {}, {})
        scheduler = configuration.scheduler
        assert scheduler.api.bind_address == "127.0.0.1:8080"
        assert (scheduler.api.bind_address.host, scheduler.api.bind_address.port) == (
            "127.0.0.1",
            8080,
        )
        assert scheduler.api.max_request_size == 10_000_000
        assert scheduler.max_concurrent_tasks is None
        assert scheduler.selection_algorithm == "best"
        assert (scheduler.task_timeout, scheduler.discovery_interval) == (300, 60)
        assert (scheduler.lease_seconds, scheduler.heartbeat_seconds) == (15, 2)
        assert (scheduler.retention_days, scheduler.retention_tasks) == (7, 1_000_000)
        assert (scheduler.max_queued_tasks, scheduler.max_batch_tasks) == (1_000_000, 10_000)
        assert configuration.swarm.listen == ("/ip4/127.0.0.1/tcp/0",)
        assert not configuration.is_set("scheduler.task_timeout")

    def test_the_documents_settings_are_accepted_and_are_the_defaults(
        self, load_text: Load
    ) -> None:
        scheduler = load_text(DOCUMENT).scheduler
        default = load(None, {}, {}).scheduler
        assert scheduler.api.bind_address == "0.0.0.0:8080"
        assert scheduler.max_concurrent_tasks == 100
        assert scheduler.selection_algorithm == "performance-aware"
        assert scheduler.task_timeout == default.task_timeout
        assert scheduler.retry == default.retry
        assert scheduler.load_balancing == default.load_balancing
        assert scheduler.fault_tolerance == default.fault_tolerance
        assert scheduler.api.max_request_size == default.api.max_request_size

    def test_worker(self, load_text: Load) -> None:
        worker = load_text("""
[worker]
name = "den"
cpu_cores = 2.5
memory = "16GiB"
labels = { zone = "a" }
custom = { licences = 3 }
[[worker.gpus]]
model = "A100"
memory = "40GB"
""").worker
        assert worker.memory == 16 << 30
        assert worker.cpu_cores == 2.5
        assert worker.labels == {"zone": "a"}
        assert worker.custom == {"licences": 3}
        assert worker.gpus is not None
        assert [(gpu.model, gpu.memory) for gpu in worker.gpus] == [("A100", 40_000_000_000)]


class TestPrecedence:
    def test_flags_beat_variables_beat_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "mycel.toml"
        path.write_text("[scheduler]\ntask_timeout = 1\nlease_seconds = 8\nretention_days = 1\n")
        environment = {
            "MYCEL_SCHEDULER__LEASE_SECONDS": "9",
            "MYCEL_SCHEDULER__RETENTION_DAYS": "2",
        }
        configuration = load(
            path, environment, {"scheduler.retention_days": 3, "worker.name": None}
        )
        scheduler = configuration.scheduler
        assert scheduler.task_timeout == 1
        assert scheduler.lease_seconds == 9
        assert scheduler.retention_days == 3
        assert configuration.is_set("scheduler.task_timeout")
        assert configuration.is_set("scheduler")
        assert not configuration.is_set("worker.name")
        assert configuration.origins["scheduler.task_timeout"] == f"{path}, line 2"

    @pytest.mark.parametrize(
        ("variable", "text", "section", "key", "value"),
        [
            ("MYCEL_WORKER__NAME", "den", "worker", "name", "den"),
            ("MYCEL_WORKER__NAME", "123", "worker", "name", "123"),
            ("MYCEL_WORKER__NAME", '"quoted"', "worker", "name", "quoted"),
            ("MYCEL_WORKER__NAME", "1\nhome = 2", "worker", "name", "1\nhome = 2"),
            ("MYCEL_WORKER__MEMORY", "16GB", "worker", "memory", 16_000_000_000),
            ("MYCEL_WORKER__MEMORY", "123", "worker", "memory", 123),
            ("MYCEL_WORKER__CPU_CORES", "2", "worker", "cpu_cores", 2.0),
            ("MYCEL_WORKER__LABELS__ZONE", "7", "worker", "labels", {"zone": "7"}),
            ("MYCEL_NODE__LOG_LEVEL", "debug", "node", "log_level", "debug"),
            ("MYCEL_SWARM__BOOTSTRAP", '["/ip4/1.2.3.4/tcp/1"]', "swarm", "bootstrap",
             ("/ip4/1.2.3.4/tcp/1",)),
        ],
    )  # fmt: skip
    def test_variables(
        self, variable: str, text: str, section: str, key: str, value: object
    ) -> None:
        configuration = load(None, {variable: text}, {})
        assert getattr(getattr(configuration, section), key) == value

    def test_variables_of_other_use_are_left_alone(self) -> None:
        environment = {"MYCEL_HOME": "/x", "MYCEL_JOB_ID": "1", "PATH": "/bin", "OTHER__KEY": "1"}
        assert load(None, environment, {}).origins == {}


BAD = {
    "unknown key": ("[scheduler]\n\ntask_timout = 3", UnknownKey, 3, ["task_timeout"]),
    "unknown section": ("\n[shceduler]\na = 3", UnknownKey, 2, ["did you mean", "scheduler"]),
    "key of another section": (
        "[worker]\nmax_attempts = 3",
        UnknownKey,
        2,
        ["belongs into [scheduler.retry]"],
    ),
    "wrong type": (
        '[scheduler]\ntask_timeout = "soon"',
        BadValue,
        2,
        ["scheduler.task_timeout", "a number", "'soon'"],
    ),
    "boolean as a number": ("[scheduler]\nmax_concurrent_tasks = true", BadValue, 2, ["whole"]),
    "out of bounds": ("[scheduler]\nlease_seconds = -1", BadValue, 2, ["> 0", "-1"]),
    "infinite": ("[worker]\ncpu_cores = inf", BadValue, 2, ["worker.cpu_cores", "inf"]),
    "no number": ("[worker]\nidle_minutes = nan", BadValue, 2, ["worker.idle_minutes"]),
    "leases that nobody could renew": (
        "[scheduler]\nheartbeat_seconds = 8",
        BadValue,
        1,
        ["lease_seconds = 15", "heartbeat_seconds = 8"],
    ),
    "requests of nothing": ("[scheduler.api]\nmax_request_size = 0", BadValue, 1, ["100 bytes"]),
    "enumerated": (
        '[scheduler]\nselection_algorithm = "bets"',
        BadValue,
        2,
        ['"round-robin"', 'did you mean "best"'],
    ),
    "negative size": ("[worker]\nmemory = -1", BadValue, 2, ["negative"]),
    "nonsense size": ('[worker]\nmemory = "lots"', BadValue, 2, ["worker.memory", "16GB"]),
    "bad address": ('[scheduler.api]\nbind_address = "8080"', BadValue, 2, ["host:port"]),
    "bad port": ('[scheduler.api]\nbind_address = "h:99999"', BadValue, 2, ["65535"]),
    "no way to find workers": (
        "[swarm.discovery]\ndht = false\ngossip = false",
        BadValue,
        1,
        ["both off"],
    ),
    "mistyped gateway": (
        '[swarm]\nbootstrap = ["/ip4/10.0.0.1/tpc/1"]',
        BadValue,
        2,
        ["multiaddress", "'tpc'"],
    ),
    "bad multiaddress": ('[swarm]\nlisten = ["1.2.3.4"]', BadValue, 2, ["multiaddress"]),
    "dotted key": ("scheduler.api.bind_address = 3", BadValue, 1, ["scheduler.api.bind_address"]),
    "inline table": ("scheduler = { retry = { max_attempts = 0 } }", BadValue, 1, ["max_attempts"]),
    "label": ('[worker.labels]\na = "b"\nc = 4', BadValue, 3, ["worker.labels.c"]),
    "second of an array of tables": (
        '[[worker.gpus]]\nmodel="a"\nmemory=1\n[[worker.gpus]]\nmodel="a"\nmemory="x"',
        BadValue,
        6,
        ["worker.gpus.1.memory"],
    ),
    "missing in an array of tables": ('\n[[worker.gpus]]\nmodel="a"', BadValue, 2, ["'memory'"]),
    "after a multi-line text": (
        '[worker]\nname = """\n[scheduler]\ntask_timout = 3\n"""\nmodles = [\n]\n',
        UnknownKey,
        6,
        ["models"],
    ),
    "a secret in an address": (
        '[worker.models.m]\nendpoint = "http://me:secret@10.0.0.1/v1"',
        BadValue,
        1,
        ["worker.models.m", "key"],
    ),
    "no TOML": ("[scheduler]\ntask_timeout = \n", ConfigurationMalformed, 2, ["column"]),
}


class TestMistakes:
    @pytest.mark.parametrize("name", BAD)
    def test_file_line_key_and_what_was_expected(self, load_text: Load, name: str) -> None:
        text, kind, line, fragments = BAD[name]
        message = refusal(load_text, text, kind)
        assert f"mycel.toml, line {line}" in message
        for fragment in fragments:
            assert fragment in message

    def test_a_mistake_in_the_environment_names_the_variable(self) -> None:
        variable = "MYCEL_SCHEDULER__TASK_TIMOUT"
        with pytest.raises(UnknownKey, match=f"{variable}.*task_timeout"):
            load(None, {variable: "3"}, {})
        with pytest.raises(BadValue, match="MYCEL_SCHEDULER__API"):
            load(None, {"MYCEL_SCHEDULER__API": "3", "MYCEL_SCHEDULER__API__BIND_ADDRESS": "x"}, {})

    def test_a_mistake_in_a_flag_names_it(self) -> None:
        with pytest.raises(BadValue, match=r"flag for scheduler\.api\.bind_address"):
            load(None, {}, {"scheduler.api.bind_address": "x"})

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationMissing, match=r"nowhere\.toml"):
            load(tmp_path / "nowhere.toml", {}, {})
        with pytest.raises(ConfigurationUnreadable):
            load(tmp_path, {}, {})
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ConfigurationUnreadable, match="UTF-8"):
            load(tmp_path / "binary.toml", {}, {})


class TestLines:
    @settings(deadline=None)
    @given(st.data())
    def test_every_key_is_found_on_its_line(self, data: st.DataObject) -> None:
        names = st.sampled_from(["a", "b-1", '"c d"', "e_2"])
        values = st.sampled_from(["1", '"x # y"', "[1,\n 2]", '"""\n[t]\nq = 1\n"""', "true"])
        tables = data.draw(st.lists(names, min_size=1, max_size=3, unique=True))
        text, expected = "", {}
        for table in tables:
            text += f"# comment\n[{table}]\n"
            for key in data.draw(st.lists(names, max_size=3, unique=True)):
                expected[table.strip('"'), key.strip('"')] = text.count("\n") + 1
                text += f"{key} = {data.draw(values)} # why\n"
        tomllib.loads(text)
        found = lines_of_keys(text)
        assert {path: found[path] for path in expected} == expected


class TestSizes:
    @pytest.mark.parametrize(
        ("value", "bytes_"),
        [
            (0, 0),
            (16_000_000_000, 16_000_000_000),
            (16e9, 16_000_000_000),
            ("16GB", 16_000_000_000),
            ("16 gb", 16_000_000_000),
            ("16GiB", 16 << 30),
            ("16Gi", 16 << 30),
            ("16G", 16_000_000_000),
            ("1.5kB", 1500),
            ("512", 512),
            ("512B", 512),
            ("1_000MB", 1_000_000_000),
        ],
    )
    def test_good(self, value: object, bytes_: int) -> None:
        assert parse_size(value) == bytes_

    @pytest.mark.parametrize(
        "value",
        [
            *(-1, "-1GB", "", "GB", "16XB", "1e9", "nan", float("nan"), float("inf"), 1.5),
            *(True, None, [], {}, 1 << 64, "9" * 50, "99999999EB", "١GB"),
        ],
    )
    def test_bad(self, value: object) -> None:
        with pytest.raises(BadSize):
            parse_size(value)

    @settings(deadline=None)
    @given(st.one_of(st.integers(), st.floats(), st.text()))
    def test_anything_is_a_size_or_refused(self, value: object) -> None:
        with contextlib.suppress(BadSize):
            assert 0 <= parse_size(value) <= SIZE_BYTES_MAX

    def test_for_people(self) -> None:
        assert [format_size(n) for n in (0, 999, 1000, 1_500_000, 16 * 10**9)] == [
            "0 B",
            "999 B",
            "1 kB",
            "1.5 MB",
            "16 GB",
        ]
