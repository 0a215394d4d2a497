"""One error for all batch systems. Its `failure` says who is at fault and whether to ask again.

BatchError
  MISSING    the site's: the programs are not installed
  DOWN       the site's: ask again
  SLOW       the site's: ask again, and expect that the first request was obeyed
  FULL       nobody's: ask again later
  REFUSED    the job's: never
  NONSENSE   the site's or ours: ask again, as after SLOW
"""

from __future__ import annotations

from mycel.core.agent.batch_jobs import BatchFailure


class BatchError(Exception):
    def __init__(self, failure: BatchFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure
