"""Data from elsewhere that the project does not ship: `../shared/data`, or `$MYCEL_DATA`."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.core.federation.request.request_tree import JobRequest
from mycel.federation.jgf import read_file, read_graph
from mycel.federation.specs.spec_reader import read_spec_file

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA = Path(os.environ.get("MYCEL_DATA", _BESIDE))
FLUXION = DATA / "fluxion"

needs_data = pytest.mark.skipif(
    not FLUXION.is_dir(),
    reason=f"there is no data at {DATA}; set MYCEL_DATA to where it is",
)


@cache
def fluxion_graph(name: str) -> ClusterGraph:
    return read_graph(read_file(FLUXION / "graphs" / name), name=name)


@cache
def fluxion_job(name: str) -> JobRequest:
    return read_spec_file(FLUXION / "jobspecs" / name)
