"""Traces are read whole, or refused with file, line and column."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from mycel.sim.entities import NS_PER_S, Capacity, Job
from mycel.sim.errors import TraceError
from mycel.sim.workloads import traces

SWF = """; Version: 2.2
;
   15   599850 192180   3477    4     -1    -1    4  53940    -1  1  12  12  -1 -1 -1 -1 -1
   16   599800  11940   2488   -1     -1    -1   25   3600    -1  1  13  13  -1 -1 -1 -1 -1
   17   600476 364560     -1    5     -1    -1    5 215400    -1  0  14  14  -1 -1 -1 -1 -1
   18   600836  32100     10    1     -1    -1    1     -1    -1  1  15  15  -1 -1 -1 -1 -1
"""
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,2,132.0,11cb48
2017-10-09 06:13:03,2951.0,1,2951.0,6214e9
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
PODS = f"""{",".join(traces.OPENB_PODS)}
pod-0,12000,16384,1,1000,,LS,Running,0,100,0
pod-1,6000,12288,1,460,V100M16|V100M32,LS,Running,50,80,50
pod-2,6000,12288,0,0,,BE,Running,60,80,
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-0,32000,262144,0,\nnode-1,96000,1000,8,G2\n"
READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "swf": (traces.read_swf, SWF),
    "philly": (traces.read_philly, PHILLY),
    "azure": (traces.read_azure, AZURE),
    "pods": (traces.read_openb_pods, PODS),
    "nodes": (traces.read_openb_nodes, NODES),
}


def _file(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def _told(job: Job) -> tuple[str, int, int, int, int]:
    task = job.tasks[0]
    arrival_s, duration_s, estimate_s = (
        one // NS_PER_S for one in (job.arrival_ns, task.duration_ns, task.estimate_ns)
    )
    return job.name, len(job.tasks), arrival_s, duration_s, estimate_s


def test_swf(tmp_path: Path) -> None:
    jobs = traces.read_swf(_file(tmp_path, SWF))
    # In the order of arrival; 17 never ran; 18 has no estimate.
    assert [_told(job) for job in jobs] == [
        ("16", 25, 0, 2488, 3600),
        ("15", 4, 50, 3477, 53940),
        ("18", 1, 1036, 10, 10),
    ]
    assert all(job.is_gang for job in jobs)
    numbers = [task.index for job in jobs for task in job.tasks]
    assert numbers == list(range(30))


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf.gz"
    path.write_bytes(gzip.compress(SWF.encode()))
    assert len(traces.read_swf(path)) == 3
    path.write_bytes(gzip.compress(SWF.encode())[:-20])
    with pytest.raises(TraceError, match="cannot be read"):
        traces.read_swf(path)


def test_philly(tmp_path: Path) -> None:
    jobs = traces.read_philly(_file(tmp_path, PHILLY))
    assert [_told(job)[1:4] for job in jobs] == [(1, 0, 2951), (2, 2932, 66)]
    assert jobs[0].tasks[0].demand.gpus == 1


def test_azure(tmp_path: Path) -> None:
    jobs = traces.read_azure(_file(tmp_path, AZURE), generated_token_ms=10.0)
    assert jobs[1].arrival_ns == pytest.approx(4.314579 * NS_PER_S, abs=1000)
    assert jobs[0].tasks[0].duration_ns == round((374 * 0.2 + 440) * 1e6)


def test_openb(tmp_path: Path) -> None:
    jobs = traces.read_openb_pods(_file(tmp_path, PODS))
    second = jobs[1].tasks[0]
    assert second.demand.gpu_milli == 460
    assert second.demand.gpu_models == {"V100M16", "V100M32"}
    assert second.duration_ns == 30 * NS_PER_S
    nodes = traces.read_openb_nodes(_file(tmp_path, NODES))
    assert nodes == [Capacity(32000, 262144, 0, ""), Capacity(96000, 1000, 8, "G2")]


def test_a_limit_takes_the_first_to_arrive(tmp_path: Path) -> None:
    assert [job.name for job in traces.read_swf(_file(tmp_path, SWF), 2)] == ["16", "15"]


@pytest.mark.parametrize(
    ("kind", "old", "new", "words"),
    [
        ("swf", "3477", "34x7", r"line 3, column 4 \(run time\): expected a number, got '34x7'"),
        ("swf", "  10    1 ", "  nan    1 ", r"line 6, column 4"),
        ("swf", " -1 -1 -1 -1 -1\n   18", " -1\n   18", "line 5, column 15: expected 18 fields"),
        ("philly", "2,132.0", "2.5,132.0", r"line 2, column 3 \(num_gpus\): expected a whole"),
        ("philly", "66.0,2", "66.0,0", "line 2, column 3 .*at least 1, got 0"),
        ("philly", "66.0,2", "-1,2", "line 2, column 2 .*at least 0"),
        ("philly", "2017-10-09 06:13:03", "yesterday", "line 3, column 1 .*expected a time"),
        ("philly", "duration", "length", "line 1, column 1: expected the columns timestamp"),
        ("azure", ",109", "", "line 3, column 3: expected 3 fields, got 2"),
        ("azure", ",109", ",109,1", "line 3, column 4: expected 3 fields, got 4"),
        ("azure", "396", "", r"line 3, column 2 \(ContextTokens\): expected a whole number"),
        ("pods", "460", "1460", "line 3, column 5 .*expected 1 to 1000"),
        ("pods", "50,80,50", "50,8,50", r"line 3, column 10 \(deletion_time\)"),
        ("nodes", "96000", "1e5", "line 3, column 2"),
    ],
)
def test_a_malformed_line_is_named(
    tmp_path: Path, kind: str, old: str, new: str, words: str
) -> None:
    read, text = READERS[kind]
    assert old in text
    with pytest.raises(TraceError, match=words):
        read(_file(tmp_path, text.replace(old, new, 1)))


@pytest.mark.parametrize("kind", READERS)
def test_nothing_is_no_trace(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TraceError, match=r"no jobs|is empty"):
        READERS[kind][0](_file(tmp_path, ""))
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="no text"):
        READERS[kind][0](path)
    with pytest.raises(TraceError, match="there is no trace"):
        READERS[kind][0](tmp_path / "nowhere")
