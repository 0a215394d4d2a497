"""An agent that kills itself with SIGKILL before or after one of its effects.

python -m tests.batch.killed_agent FOLDER EFFECT {before,after}      EFFECT counts from 1; 0: never
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from mycel.core.agent.accept_rules import ACCEPT_RULES
from mycel.core.agent.agent_effects import Effect
from mycel.core.agent.agent_settings import AgentSettings
from mycel.roles.cluster import agent_program
from mycel.roles.cluster.agent_journal import AgentJournal
from mycel.roles.cluster.agent_loop import AgentLoop
from mycel.roles.cluster.agent_program import AgentOptions

QUICK: Final = AgentSettings(
    look_seconds=0.3, retry_seconds=0.5, settle_seconds=3.0, submissions_max=50
)


class KilledLoop(AgentLoop):
    left = 0
    before = True

    def perform(self, effect: Effect) -> None:
        KilledLoop.left -= 1
        if KilledLoop.left == 0 and self.before:
            os.kill(os.getpid(), signal.SIGKILL)
        super().perform(effect)
        if KilledLoop.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, effect: str, when: str) -> int:
    KilledLoop.left, KilledLoop.before = int(effect), when == "before"
    options = AgentOptions(
        folder=Path(folder),
        shared=None,
        system="slurm",
        rule=ACCEPT_RULES["fifo"],
        settings=QUICK,
        until_empty=True,
    )
    make = agent_program.make_loop

    def make_killed(options: AgentOptions, journal: AgentJournal) -> AgentLoop:
        return make(options, journal, KilledLoop)

    agent_program.make_loop = make_killed  # type: ignore[assignment]
    return agent_program.main(options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
