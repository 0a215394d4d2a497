"""Recorded work: SWF, Alibaba openb, Philly, Azure LLM requests.

A trace is read whole or not at all: a malformed line is an error with file, line and column. Files
that end in .gz are unpacked on the way.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from mycel.sim.entities import NS_PER_S, SLOT, Capacity, Demand, Job
from mycel.sim.errors import TraceError

T = TypeVar("T")

SWF_COLUMNS: Final = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
]


class Record(NamedTuple):
    """A job as a trace has it. Jobs are made only of those that are kept."""

    arrival_ns: int
    name: str
    tasks: int
    is_gang: bool
    demand: Demand
    duration_ns: int
    estimate_ns: int


class Row:
    """One line of a trace; its fields are read by name."""

    def __init__(self, path: Path, line: int, names: Sequence[str], fields: Sequence[str]) -> None:
        self.path, self.line, self.names, self.fields = path, line, names, fields
        if len(fields) != len(names):
            raise TraceError(
                f"{path}, line {line}, column {min(len(fields), len(names)) + 1}: expected "
                f"{len(names)} fields, got {len(fields)}"
            )

    def read(self, name: str, convert: Callable[[str], T], expected: str) -> T:
        text = self.fields[self.names.index(name)]
        try:
            return convert(text)
        except (ValueError, OverflowError):
            raise self.error(name, f"expected {expected}, got {text!r}") from None

    def integer(self, name: str, least: int) -> int:
        value = self.read(name, int, "a whole number")
        if value < least:
            raise self.error(name, f"expected at least {least}, got {value}")
        return value

    def number(self, name: str, least: float) -> float:
        value = self.read(name, float, "a number")
        if not least <= value < 1e15:  # also of what is no number at all
            raise self.error(name, f"expected at least {least:g}, got {value}")
        return value

    def time(self, name: str) -> float:
        moment = self.read(name, datetime.fromisoformat, "a time such as 2023-11-16 18:15:46")
        return moment.timestamp()

    def error(self, name: str, words: str) -> TraceError:
        column = self.names.index(name) + 1
        return TraceError(f"{self.path}, line {self.line}, column {column} ({name}): {words}")


def read_swf(path: Path, limit: int | None = None) -> list[Job]:
    """Each job is a gang of one-core tasks; jobs that never ran (no processors or time) are
    left out, as the archive recommends. A missing estimate is the run time."""
    records: list[Record] = []
    for line, text in _lines(path):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        row = Row(path, line, SWF_COLUMNS, text.split())
        submit_s = row.number("submit time", 0)
        run_s = row.number("run time", -1)
        processors = row.integer("allocated processors", -1)
        if processors < 1:
            processors = row.integer("requested processors", -1)
        estimate_s = row.number("requested time", -1)
        name = str(row.integer("job number", 0))
        if run_s > 0 and processors > 0:
            run_ns = _ns(run_s)
            estimate_ns = _ns(estimate_s) if estimate_s > 0 else run_ns
            records.append(Record(_ns(submit_s), name, processors, True, SLOT, run_ns, estimate_ns))
    return _jobs(records, path, limit)


def read_philly(path: Path, limit: int | None = None) -> list[Job]:
    """Each job is a gang of tasks with one GPU each."""
    demand = Demand(cores_milli=0, gpus=1)
    records: list[Record] = []
    for row in _csv_rows(path, ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")):
        duration_ns = max(1, _ns(row.number("duration", 0)))
        gpus = row.integer("num_gpus", 1)
        arrival_ns = _ns(row.time("timestamp"))
        records.append(
            Record(arrival_ns, str(row.line), gpus, True, demand, duration_ns, duration_ns)
        )
    return _jobs(records, path, limit)


def read_azure(
    path: Path,
    limit: int | None = None,
    *,
    context_token_ms: float = 0.2,
    generated_token_ms: float = 20.0,
) -> list[Job]:
    """Each request is one task. How long a token takes is ours to choose, not the trace's."""
    records: list[Record] = []
    for row in _csv_rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        context = row.integer("ContextTokens", 0)
        generated = row.integer("GeneratedTokens", 0)
        length_ms = context * context_token_ms + generated * generated_token_ms
        duration_ns = max(1, round(length_ms * 1e6))
        arrival_ns = _ns(row.time("TIMESTAMP"))
        records.append(Record(arrival_ns, str(row.line), 1, False, SLOT, duration_ns, duration_ns))
    return _jobs(records, path, limit)


OPENB_PODS: Final = [
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
]
OPENB_NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def read_openb_pods(path: Path, limit: int | None = None) -> list[Job]:
    """Each pod is one task that runs from its creation to its deletion."""
    records: list[Record] = []
    for row in _csv_rows(path, OPENB_PODS):
        created_s = row.number("creation_time", 0)
        deleted_s = row.number("deletion_time", 0)
        if deleted_s < created_s:
            raise row.error("deletion_time", "expected at least the creation time")
        gpus = row.integer("num_gpu", 0)
        gpu_milli = row.integer("gpu_milli", 0)
        if gpus and not 1 <= gpu_milli <= 1000:
            raise row.error("gpu_milli", f"expected 1 to 1000 for a pod with GPUs, got {gpu_milli}")
        models = row.fields[row.names.index("gpu_spec")]
        demand = Demand(
            row.integer("cpu_milli", 0),
            row.integer("memory_mib", 0),
            gpus,
            gpu_milli if gpus else 1000,
            frozenset(models.split("|")) if models else frozenset(),
        )
        duration_ns = max(1, _ns(deleted_s - created_s))
        records.append(
            Record(_ns(created_s), row.fields[0], 1, False, demand, duration_ns, duration_ns)
        )
    return _jobs(records, path, limit)


def read_openb_nodes(path: Path) -> list[Capacity]:
    return [
        Capacity(
            row.integer("cpu_milli", 0),
            row.integer("memory_mib", 0),
            row.integer("gpu", 0),
            row.fields[row.names.index("model")],
        )
        for row in _csv_rows(path, OPENB_NODES)
    ]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as packed:
                yield from enumerate(packed, 1)
        else:
            with path.open(encoding="utf-8") as file:
                yield from enumerate(file, 1)
    except FileNotFoundError:
        raise TraceError(f"there is no trace {path}: correct the path") from None
    except (OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is no text (byte {error.start})") from None


def _csv_rows(path: Path, names: Sequence[str]) -> Iterator[Row]:
    header_seen = False
    for line, text in _lines(path):
        fields = next(csv.reader([text]), [])
        if not header_seen:
            header_seen = True
            if [field.strip() for field in fields] != list(names):
                raise TraceError(
                    f"{path}, line 1, column 1: expected the columns {','.join(names)}, "
                    f"got {text.strip()[:80]!r}"
                )
        elif fields:
            yield Row(path, line, names, fields)
    if not header_seen:
        raise TraceError(f"{path} is empty: expected the columns {','.join(names)}")


def _jobs(records: list[Record], path: Path, limit: int | None) -> list[Job]:
    """By arrival, from zero; the first `limit` of them. They arrive at all entries in turn."""
    if not records:
        raise TraceError(f"{path} has no jobs")
    records.sort(key=lambda record: record.arrival_ns)
    begin_ns, index = records[0].arrival_ns, 0
    jobs: list[Job] = []
    for number, record in enumerate(records[:limit]):
        job = Job(
            number, record.arrival_ns - begin_ns, number, is_gang=record.is_gang, name=record.name
        )
        for _ in range(record.tasks):
            job.add(index, record.demand, record.duration_ns, record.estimate_ns)
            index += 1
        jobs.append(job)
    return jobs


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
