"""Graphs out of what Slurm, Kubernetes and Ray print, recorded or asked for."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.graph.cluster_graph import ClusterGraph, build_graph
from mycel.federation.extraction import kubernetes, ray, slurm, sources
from mycel.federation.extraction.machines import Machine, chunks, draw
from mycel.federation.extraction.node_facts import PROBE, read_compspec, read_probe, write_subsystem
from mycel.federation.jgf import read_graph, read_subsystem, write_graph
from mycel.federation.specs.spec_reader import read_spec

from .data import DATA, needs_data


def drawn(machines: list[Machine]) -> ClusterGraph:
    found = draw("c", machines)
    return build_graph(found.vertices, found.children)


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


OLD = {"nodes": [{
    "name": "n0", "cpus": 16, "threads": 2, "sockets": 2, "cores": 4, "real_memory": 64000,
    "gres": "gpu:a100:2(S:0-1),gpu:1,nic:1", "state": "idle", "state_flags": [],
    "features": "ib,ssd", "active_features": "ib", "partitions": ["debug"],
    "architecture": "x86_64",
}]}  # fmt: skip
NEW = {"nodes": [{
    "name": "n0", "cpus": 16, "threads": 2, "sockets": 2, "cores": 4, "real_memory": number(64000),
    "gres": "gpu:a100:2(S:0-1),gpu:1,nic:1", "state": ["IDLE"], "features": ["ib", "ssd"],
    "active_features": ["ib"], "partitions": ["debug"], "architecture": "x86_64",
}]}  # fmt: skip
TEXT = """\
NodeName=n0 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.10
   AvailableFeatures=ib,ssd
   ActiveFeatures=ib
   Gres=gpu:a100:2(S:0-1),gpu:1,nic:1
   NodeAddr=127.0.0.1 NodeHostName=vm Version=22.05.8
   RealMemory=64000 AllocMem=0 FreeMem=100 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1
   Partitions=debug

"""


@pytest.mark.parametrize(
    "data", [json.dumps(OLD), json.dumps(NEW), TEXT, " ".join(TEXT.split()) + "\n"]
)
def test_slurm_says_the_same_in_all_its_shapes(data: str) -> None:
    (machine,) = slurm.read_nodes(data.encode())
    assert machine == Machine(
        name="n0",
        cores=8,
        memory_mb=64000,
        gpus=3,
        properties=frozenset(("ib", "partition=debug", "arch=x86_64")),
    )
    totals = drawn([machine]).totals()
    assert totals == {"cluster": 1, "node": 1, "core": 8, "gpu": 3, "memory": 64000}


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ("idle", True),
        ("mixed", True),
        ("down", False),
        (["IDLE", "DRAIN"], False),
        (["ALLOCATED"], True),
        (["DOWN", "NOT_RESPONDING"], False),
    ],
)
def test_slurms_states(state: Any, up: bool) -> None:
    data = json.dumps({"nodes": [{"name": "n", "cpus": 1, "state": state}]}).encode()
    assert slurm.read_nodes(data)[0].up is up


@pytest.mark.parametrize(
    ("said", "up"), [("IDLE", True), ("IDLE+DRAIN", False), ("DOWN*", False), ("MIXED", True)]
)
def test_slurms_states_in_text(said: str, up: bool) -> None:
    (machine,) = slurm.read_nodes(TEXT.replace("State=IDLE", f"State={said}").encode())
    assert machine.up is up


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"slurm_load_node error: Unable to contact slurm controller",
        b"{",
        b'{"errors": ["down"]}',
        b'{"nodes": [{}]}',
        b'{"nodes": [{"name": "n", "cpus": -1}]}',
        b'{"nodes": [{"name": "n", "cpus": "many"}]}',
    ],
)
def test_nonsense_of_slurm_is_refused(data: bytes) -> None:
    with pytest.raises(GraphError):
        slurm.read_nodes(data)


KUBERNETES = {"items": [
    {
        "metadata": {"name": "k0", "labels": {"zone": "eu", "worker": ""}},
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "32Gi", "nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": "arm64"},
        },
    },
    {
        "metadata": {"name": "k1"},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"cpu": 4, "memory": "16384000Ki"}},
    },
    {
        "metadata": {"name": "k2"},
        "status": {
            "capacity": {"cpu": "1e1"},
            "conditions": [{"type": "Ready", "status": "Unknown"}],
        },
    },
]}  # fmt: skip


def test_kubernetes_counts_what_pods_may_have() -> None:
    first, second, third = kubernetes.read_nodes(json.dumps(KUBERNETES).encode())
    assert (first.cores, first.memory_mb, first.gpus, first.up) == (7, 34359, 2, True)
    assert first.properties == {"zone=eu", "worker", "arch=arm64"}
    assert (second.cores, second.memory_mb, second.up) == (4, 16777, False)
    assert (third.cores, third.up) == (10, False)


@pytest.mark.parametrize("value", ["7x", "-1", "", None, "1e999", "NaN", True])
def test_nonsense_of_kubernetes_is_refused(value: Any) -> None:
    items = [{"metadata": {"name": "k"}, "status": {"capacity": {"cpu": value}}}]
    with pytest.raises(GraphError):
        draw("c", kubernetes.read_nodes(json.dumps({"items": items}).encode()))


def test_ray_says_the_same_in_all_its_shapes() -> None:
    resources = {"CPU": 4.0, "GPU": 1.0, "memory": 8e9, "accelerator_type:A100": 1.0}
    listed: list[dict[str, Any]] = [
        {"node_id": "f" * 56, "node_ip": "10.0.0.1", "state": "ALIVE"},
        {"node_id": "e" * 56, "node_ip": "10.0.0.2", "state": "DEAD"},
    ]
    for one in listed:
        one["resources_total"] = resources
    plain = [{"NodeID": "f" * 56, "Alive": True, "NodeName": "10.0.0.1", "Resources": resources}]
    answer = {"result": True, "data": {"result": {"result": listed}}}
    expected = Machine(
        name="10.0.0.1-ffffffff",
        cores=4,
        memory_mb=8000,
        gpus=1,
        properties=frozenset(("A100",)),
    )
    for data in (listed, plain, answer):
        assert ray.read_nodes(json.dumps(data).encode()) == [expected]
    with pytest.raises(GraphError):
        ray.read_nodes(b"nothing")


def test_machines_that_cannot_be_are_refused() -> None:
    good = Machine(name="n", cores=1)
    for wrong in ([], [good, good], [Machine(name="", cores=1)], [Machine(name="n", cores=10**9)]):
        with pytest.raises(GraphError):
            draw("c", wrong)


def test_memory_comes_in_equal_chunks() -> None:
    assert chunks(16_000) == [1_000] * 16
    assert chunks(700) == [700]
    assert chunks(0) == []
    assert len(chunks(4_000_000)) <= 64


def test_several_tasks_fit_a_node_with_their_memory() -> None:
    graph = drawn([Machine(name="n", cores=8, memory_mb=16_000)])
    text = "tasks_per_node: {}\ntask: {{requirements: {{cpu_cores: 2, min_memory: {}}}}}"
    assert Calendar(graph).satisfy(read_spec(text.format(4, "4GB")))
    assert not Calendar(graph).satisfy(read_spec(text.format(4, "5GB")))
    assert not Calendar(graph).satisfy(read_spec(text.format(5, "1GB")))


COMPSPEC = {"extractors": {
    "library": {"sections": {"mpi": {"mpi.variant": "mpich", "mpi.version": "4.1.2"}}},
    "system": {"sections": {"os": {"name": "debian", "vendor": {"id": 7}}}},
}}  # fmt: skip


def test_what_compspec_wrote_becomes_requirements_that_can_be_met() -> None:
    facts = read_compspec(json.dumps(COMPSPEC).encode(), "facts.json")
    assert facts == {
        "mpi.variant": "mpich",
        "mpi.version": "4.1.2",
        "os.name": "debian",
        "os.vendor.id": "7",
    }
    found = draw("c", [Machine(name="n0", cores=2), Machine(name="n1", cores=2)])
    graph = read_graph(write_graph(found.vertices, found.children))
    data = write_subsystem({"n1": facts}, graph)
    attached = read_subsystem(data, "compatibility", graph)
    assert {graph.name(vertex) for vertex in attached} == {"n1"}
    everywhere = read_subsystem(write_subsystem({"*": facts}, graph), "compatibility", graph)
    assert len(everywhere) == 2
    with pytest.raises(GraphError, match="n7"):
        write_subsystem({"n7": facts}, graph)
    for wrong in (b"", b"[]", b"{}", b'{"extractors": {"a": 1}}'):
        with pytest.raises(GraphError):
            read_compspec(wrong, "facts.json")


def test_the_probe_runs_in_a_plain_shell() -> None:
    environment = {**os.environ, "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["sh", "-c", PROBE], capture_output=True, text=True, check=True, env=environment
    )
    facts = read_probe(f"Welcome to n1!\n{done.stdout}")
    assert set(facts) == {"n1"}
    assert facts["n1"]["arch.name"] == os.uname().machine
    assert facts["n1"]["kernel.release"] == os.uname().release


def test_a_batch_system_that_fails_is_told_apart(tmp_path: Path) -> None:
    for script, said in (
        ("echo 'controller is down' >&2; exit 3", "controller is down"),
        ("sleep 60", "no answer within"),
    ):
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\nexec 1>&2\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        with pytest.raises(sources.BatchSystemError, match=said):
            sources.run((str(program),), 1.0)
    with pytest.raises(sources.BatchSystemError, match="no program"):
        sources.run((str(tmp_path / "nowhere"),), 1.0)


@needs_data
@pytest.mark.parametrize(("file", "nodes"), [("sinfo-22.05.json", 4), ("nodes-24.11.json", 3)])
def test_recorded_answers_of_two_generations(file: str, nodes: int) -> None:
    machines = slurm.read_nodes((DATA / "slurm" / file).read_bytes())
    totals = drawn(machines).totals()
    assert totals == {
        "cluster": 1,
        "node": nodes,
        "core": 8 * nodes,
        "gpu": 2 * nodes,
        "memory": 16_000 * nodes,
    }
