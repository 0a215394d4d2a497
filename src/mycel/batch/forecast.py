"""When a job would start in a batch system, asked without an agent."""

from __future__ import annotations

from pathlib import Path

from mycel.core.agent.batch_jobs import BatchFailure, ClusterJob
from mycel.core.agent.bids import Bid, WaitHistory, bid_of

from .batch_system import BatchSystem, Submission
from .errors import BatchError


def forecast(system: BatchSystem, job: ClusterJob) -> Bid:
    """From the batch system itself, else from the length of its queue. Raises BatchError."""
    question = Submission(
        name="mycel-question", job=job, script="#!/bin/sh\ntrue\n", folder=Path.cwd()
    )
    try:
        estimate = system.estimate(question)
    except BatchError as error:
        if error.failure is not BatchFailure.NONSENSE:
            raise
        estimate = None
    return bid_of(job, estimate, WaitHistory(), system.capacity(job.partition))
