"""HyperQueue on this machine: a server and two workers of one core.

Its wheel brings no `hq` program, but the same server and workers as a library, which run within
this process. It has no warm interpreters, a Python function is a process that starts anew; so
its tasks are programs here, and there is no figure for no-ops. Its library looks for the end of
a job once a second: instead, the last program of a job writes into a pipe, which is in
HyperQueue's favour, because its server need not know of the end by then.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import peer_measures

os.environ["TQDM_DISABLE"] = "1"  # no progress bars
hyperqueue: Any = importlib.import_module("hyperqueue")
cluster: Any = importlib.import_module("hyperqueue.cluster")


class HyperQueue:
    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # where it puts what tasks print
        os.mkfifo("ended")
        self._tell = ["/bin/sh", "-c", f"echo >{folder}/ended"]
        self._ended = os.open("ended", os.O_RDWR)  # both ways, so that no opening waits
        self._cluster = cluster.LocalCluster()
        for _ in range(2):
            self._cluster.start_worker(cluster.WorkerConfig(cores=1))
        self._client = self._cluster.client()

    def noop(self, number: int) -> object:
        self.processes(0)
        return peer_measures.expected(number)  # a program has no value

    def noops(self, count: int) -> Sequence[object]:
        raise NotImplementedError

    def processes(self, count: int) -> None:
        job = hyperqueue.Job()
        programs = [job.program(["/bin/true"], stdout=None, stderr=None) for _ in range(count)]
        job.program(self._tell, stdout=None, stderr=None, deps=programs)
        self._client.submit(job)
        os.read(self._ended, 1)

    def close(self) -> None:
        self._cluster.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        peer = HyperQueue(folder)
        peer_measures.first(peer)
        peer_measures.measure(peer, noops=0, latencies=500, processes=2_000, warm_up=20)
        peer.close()
        os.chdir("/")
