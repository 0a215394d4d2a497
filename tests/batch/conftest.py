"""A Slurm cluster that tests share, for what breaks nothing in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .slurm_cluster import SlurmCluster, skip_without_slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Four idle nodes of four cores and one GPU each. Leave none of them busy."""
    skip_without_slurm()
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "alpha", gpus=1) as cluster:
        yield cluster
