"""Logs and metrics."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycel.telemetry.log import LINE_BYTES_MAX, Log, route_logging
from mycel.telemetry.metrics import Histogram, Recent, SchedulerFigures, SchedulerMetrics
from mycel.telemetry.sinks import FileSink, StreamSink

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE_SECONDS = 60.0


class ListSink:
    def __init__(self) -> None:
        self.content = b""
        self.closed = False
        self.broken = False
        self.written = threading.Event()

    def write(self, lines: bytes) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.content += lines
        self.written.set()

    def close(self) -> None:
        self.closed = True

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.content.splitlines()]


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def log(sink: ListSink) -> Iterator[Log]:
    made = Log(sink, now=lambda: 12.5, common={"role": "scheduler"})
    yield made
    made.close()


class TestLog:
    def test_a_line(self, log: Log, sink: ListSink) -> None:
        log.info("job opened", job="abc", tasks=3)
        log.flush()
        assert sink.lines() == [
            {
                "time": 12.5,
                "level": "info",
                "event": "job opened",
                "role": "scheduler",
                "job": "abc",
                "tasks": 3,
            }
        ]

    def test_levels(self, log: Log, sink: ListSink) -> None:
        log.debug("unheard")
        log.info("heard")
        log.close()
        assert [line["event"] for line in sink.lines()] == ["heard"]
        assert sink.closed

    def test_lines_wait_for_a_warning(self, log: Log, sink: ListSink) -> None:
        log.info("first")
        log.warning("second")
        assert [line["event"] for line in sink.lines()] == ["first", "second"]

    def test_lines_do_not_wait_for_ever(self, log: Log, sink: ListSink) -> None:
        log.info("alone")
        assert sink.written.wait(PATIENCE_SECONDS)
        assert len(sink.lines()) == 1

    def test_what_json_cannot_say(self, log: Log, sink: ListSink) -> None:
        log.error("odd", path=Path("/x"), huge=1 << 100, text="\udcff", number=float("nan"))
        (line,) = sink.lines()
        assert "/x" in str(line["path"])

    def test_a_line_has_a_limit(self, log: Log, sink: ListSink) -> None:
        log.error("large", text="x" * (LINE_BYTES_MAX + 1))
        (line,) = sink.lines()
        assert line["event"] == "large"
        assert line["bytes_too_long"] > LINE_BYTES_MAX

    def test_a_broken_sink_stops_nobody(
        self, log: Log, sink: ListSink, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sink.broken = True
        log.error("lost")
        log.error("lost too")
        sink.broken = False
        log.error("kept")
        assert [line["event"] for line in sink.lines()] == ["kept"]
        assert log.lines_dropped == 2
        assert capsys.readouterr().err.count("log lines are being lost") == 1

    def test_threads(self, log: Log, sink: ListSink) -> None:
        def write(thread: int) -> None:
            for number in range(2000):
                log.info("counted", thread=thread, number=number)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.close()
        assert len({(line["thread"], line["number"]) for line in sink.lines()}) == 8000

    def test_after_close_nothing_happens(self, log: Log, sink: ListSink) -> None:
        log.close()
        log.error("late")
        assert sink.content == b""

    def test_libraries(self, log: Log, sink: ListSink) -> None:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            route_logging(log)
            logging.getLogger("some.library").warning("it is %d", 5)
            logging.getLogger("some.library").warning("bad %d", "arguments", "many")
            logging.getLogger("some.library").debug("unheard")
            try:
                raise ValueError("why")
            except ValueError:
                logging.getLogger("some.library").exception("failed")
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        first, second, third = sink.lines()
        assert first["event"] == "library"
        assert (first["logger"], first["message"]) == ("some.library", "it is 5")
        assert second["message"] == "bad %d"
        assert third["level"] == "error"
        assert "ValueError: why" in third["exception"]

    def test_the_end_of_a_process_flushes(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        program = (
            "from pathlib import Path; from mycel.telemetry.log import Log;"
            "from mycel.telemetry.sinks import FileSink; import sys;"
            "Log(FileSink(Path(sys.argv[1]))).info('last')"
        )
        subprocess.run(
            [sys.executable, "-c", program, str(path)],
            check=True,
            env={"PYTHONPATH": str(SOURCE)},
        )
        assert json.loads(path.read_text())["event"] == "last"


class TestSinks:
    def test_full_files_are_put_aside(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        sink = FileSink(path, bytes_max=10, files_kept=2)
        for number in range(6):
            sink.write(b"line %d\n" % number)
        sink.close()
        assert sorted(file.name for file in tmp_path.iterdir()) == [
            "log.jsonl",
            "log.jsonl.1",
            "log.jsonl.2",
        ]
        assert path.read_bytes() == b"line 5\n"
        assert (tmp_path / "log.jsonl.2").read_bytes() == b"line 3\n"
        assert path.stat().st_mode & 0o777 == 0o600

    def test_none_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        sink = FileSink(path, bytes_max=10, files_kept=0)
        sink.write(b"line 1\n")
        sink.write(b"line 2\n")
        sink.close()
        assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
        assert path.read_bytes() == b"line 2\n"

    def test_a_file_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        for number in range(2):
            sink = FileSink(path)
            sink.write(b"line %d\n" % number)
            sink.close()
        assert path.read_bytes() == b"line 0\nline 1\n"

    def test_stream(self) -> None:
        stream = io.BytesIO()
        sink = StreamSink(stream)
        sink.write(b"x\n")
        sink.close()
        assert stream.getvalue() == b"x\n"


DOCUMENT = {
    "hypha_scheduler_tasks_queued": 15,
    "hypha_scheduler_tasks_completed_total": 1523,
    "hypha_scheduler_tasks_failed_total": 12,
    "hypha_scheduler_workers_available": 8,
    "hypha_scheduler_workers_busy": 3,
    "hypha_scheduler_worker_selection_duration_seconds": 0.002,
}


def samples(metrics: SchedulerMetrics) -> dict[str, float]:
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


class TestMetrics:
    def test_the_documents_metrics_have_exactly_their_names(self) -> None:
        figures = SchedulerFigures(
            queued=15,
            completed=1523,
            failed=12,
            workers_available=8,
            workers_busy=3,
            selection_mean_seconds=0.002,
        )
        found = samples(SchedulerMetrics(lambda: figures, version="1.2"))
        assert {n: v for n, v in found.items() if n.startswith("hypha_")} == DOCUMENT
        assert not [name for name in found if "_created" in name]
        assert found['mycel_build_info{version="1.2"}'] == 1
        assert "process_cpu_seconds_total" in found

    def test_values_are_those_of_the_moment(self) -> None:
        figures = SchedulerFigures()
        metrics = SchedulerMetrics(lambda: figures, version="1.2")
        assert samples(metrics)["hypha_scheduler_tasks_queued"] == 0
        figures.queued = 7
        assert samples(metrics)["hypha_scheduler_tasks_queued"] == 7

    def test_histograms(self) -> None:
        metrics = SchedulerMetrics(SchedulerFigures, version="1.2")
        metrics.task_latency_seconds.observe_all([0.001, 0.0011, 10_000.0])
        metrics.worker_selection_seconds.observe(0.00001, 4)
        found = samples(metrics)
        name = "mycel_scheduler_task_latency_seconds"
        assert found[f'{name}_bucket{{le="0.001"}}'] == 1
        assert found[f'{name}_bucket{{le="0.002"}}'] == 2
        assert found[f'{name}_bucket{{le="+Inf"}}'] == found[f"{name}_count"] == 3
        assert found[f"{name}_sum"] == pytest.approx(10_000.0021)
        assert found["mycel_scheduler_worker_selection_seconds_count"] == 4

    def test_prometheus_is_imported_by_the_first_scrape_only(self) -> None:
        program = (
            "import sys; from mycel.telemetry.metrics import SchedulerMetrics, SchedulerFigures;"
            "metrics = SchedulerMetrics(SchedulerFigures, version='1');"
            "assert 'prometheus_client' not in sys.modules; metrics.exposition()"
        )
        subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(SOURCE)})

    @settings(deadline=None)
    @given(st.lists(st.floats(0, 100)))
    def test_cumulative_counts(self, values: list[float]) -> None:
        histogram = Histogram([1.0, 10.0, 50.0])
        histogram.observe_all(values)
        expected = [sum(v <= bound for v in values) for bound in histogram.bounds]
        assert histogram.cumulative() == [*expected, len(values)]

    def test_recent_mean_forgets(self) -> None:
        recent = Recent(0.0, 60.0)
        assert recent.mean(0.0) == 0.0
        recent.add(0.0, 10.0, 2)
        recent.add(30.0, 1.0)
        assert recent.mean(31.0) == pytest.approx(11 / 3)
        assert recent.mean(70.0) == 1.0
        assert recent.mean(200.0) == 0.0

    def test_recent_rate(self) -> None:
        recent = Recent(0.0, 60.0)
        recent.add(2.0, 1.0, 30)
        assert recent.per_second(3.0) == 6.0  # a slice of five seconds at the least
        assert recent.per_second(30.0) == 1.0
        assert recent.per_second(59.0) == pytest.approx(30 / 59)
        assert recent.per_second(200.0) == 0.0
