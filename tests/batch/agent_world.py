"""An agent, its origin and a batch system in virtual time, with faults, all from one seed.

    origin ──messages, late, lost or twice──▶ agent ──submissions──▶ batch system ──▶ scripts
                                                └───────── shared folder ─────────────┘

The agent dies between any two of its effects and keeps its journal alone. Submissions live on
without it and may arrive late. The batch system crashes, loses what it had accepted, gives numbers
twice, forgets what has ended. Files appear late. `complaints` says what was promised and broken.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from mycel.core.agent import agent_effects as effects
from mycel.core.agent import agent_events as events
from mycel.core.agent.accept_rules import ACCEPT_RULES
from mycel.core.agent.agent_effects import Effect
from mycel.core.agent.agent_machine import AgentMachine
from mycel.core.agent.agent_settings import AgentSettings
from mycel.core.agent.attempts import AttemptName, ElementSeen, Outcome, OutcomeState
from mycel.core.agent.batch_jobs import (
    BatchEntry,
    BatchFailure,
    BatchState,
    Capacity,
    ClusterJob,
    Estimate,
)
from mycel.core.agent.bids import Bid

SETTINGS: Final = AgentSettings(patience_seconds=900.0, out_max=12, forgotten_max=50)
FAULTS_SECONDS: Final = 3000.0
"""After this nothing breaks any more, and everything has to come to its end."""
END_SECONDS: Final = 20_000.0
FORGET_SECONDS: Final = 60.0
LATE_FILE_SECONDS: Final = 30.0
JOBS: Final = 12


class Bugs(msgspec.Struct, frozen=True):
    """Deliberate faults of ours, each of which has to be caught."""

    scripts_do_not_claim: bool = False
    records_come_late: bool = False
    """The journal is written after what should wait for it."""
    fences_are_not_put_up: bool = False
    names_are_forgotten: bool = False
    """A late message starts what was acknowledged, and its claim is gone as well."""


class Copy(msgspec.Struct):
    """What the batch system has of one element of one submission."""

    name: AttemptName
    index: int
    number: int
    state: BatchState = BatchState.PENDING
    ended_at: float = 0.0
    runs: bool = False
    """It has the claim."""


class Claim(msgspec.Struct):
    """In the shared folder. `seen_at`: when the agent's machine sees it."""

    fence: bool
    seen_at: float
    code: int | None = None
    code_seen_at: float = 0.0


class Wish(msgspec.Struct):
    """One attempt, as its origin has it."""

    name: AttemptName
    job: ClusterJob
    outcome: Outcome | None = None
    cancelled: bool = False
    elsewhere: bool = False
    """Its origin heard nothing for a lease, and gave the job to somebody else."""

    @property
    def is_current(self) -> bool:
        return self.outcome is None and not self.elsewhere


class World:
    def __init__(self, seed: int, bugs: Bugs | None = None) -> None:
        self.random = random.Random(seed)
        self.bugs = bugs or Bugs()
        self.now = 0.0
        self.complaints: list[str] = []
        self.bids: list[Bid] = []
        self.runs: Counter[tuple[AttemptName, int]] = Counter()
        self.fenced: set[tuple[AttemptName, int]] = set()
        """What the agent was told will never run."""
        self.killed: set[AttemptName] = set()
        """Attempts of which something that ran was killed by the world, not by the agent."""
        self.claims: dict[tuple[AttemptName, int], Claim] = {}
        self.copies: list[Copy] = []
        self.wishes: dict[AttemptName, Wish] = {}
        self.journal: list[effects.Entry] = []
        self.agent: AgentMachine | None = None
        self.agents = 0
        self._life = 0
        self._numbers = itertools.count(1)
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._controller_up = True
        self._linked = True
        self._heard_at = 0.0
        self._slots = self.random.choice((1, 3, 8))
        self._rule = ACCEPT_RULES[self.random.choice(sorted(ACCEPT_RULES))]
        self._crash = self.random.choice((0.0, 0.002, 0.01))
        self._loss = self.random.choice((0.0, 0.05, 0.3))
        self._codes: dict[tuple[AttemptName, int], int] = {}

    # ── the run

    def run(self) -> None:
        for number in range(JOBS):
            self._at(self.random.uniform(0, 1500), partial(self._wish, number))
        for _ in range(self.random.randrange(6)):
            self._at(self.random.uniform(10, FAULTS_SECONDS), self._break_something)
        self._at(FAULTS_SECONDS, self._heal)
        self._at(0.0, self._start_agent)
        self._at(1.0, self._batch_works)
        self._at(5.0, self._origin_works)
        while self._agenda and not self._is_over():
            self.now, _, action = heapq.heappop(self._agenda)
            if self.now > END_SECONDS:
                break
            action()
        self._judge()

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (max(time, self.now), next(self._order), action))

    def _is_over(self) -> bool:
        """A while after the last outcome: what comes late then would still be seen."""
        return self.now > FAULTS_SECONDS + 3000 and not self._open()

    def _open(self) -> list[str]:
        held = [] if self.agent is None else [attempt.name for attempt in self.agent.attempts]
        return [*held, *(wish.name for wish in self.wishes.values() if wish.is_current)]

    # ── the faults

    def _break_something(self) -> None:
        kind = self.random.randrange(6)
        length = self.random.choice((5.0, 100.0, 900.0))
        if kind == 0:
            self._kill_agent()
        elif kind == 1:
            self._linked = False
            self._at(self.now + length, self._link)
        elif kind == 2:
            self._controller_up = False
            if self.random.random() < 0.5:  # what it had not saved is gone
                self.copies = [one for one in self.copies if one.state is not BatchState.PENDING]
            self._at(self.now + length, self._start_controller)
        elif kind == 3:
            for copy in self.copies:
                if copy.runs and self.random.random() < 0.3:
                    self._end(copy, BatchState.NODE_FAILED, None)
        elif kind == 4:
            for copy in self.copies:
                if copy.state.is_active and self.random.random() < 0.3:
                    self._end(copy, BatchState.CANCELLED, None)
        else:
            self._agent_sleeps_until = self.now + length

    _agent_sleeps_until = 0.0

    def _heal(self) -> None:
        self._crash = self._loss = 0.0
        self._controller_up = True
        self._link()

    def _start_controller(self) -> None:
        self._controller_up = True

    def _link(self) -> None:
        self._linked = True
        self._tell(events.Connected())

    def _kill_agent(self) -> None:
        self.agent = None
        self._life += 1
        self._at(
            self.now + self.random.choice((1.0, 1.0, 30.0, 30.0, 30.0, 800.0)), self._start_agent
        )

    # ── the agent

    def _start_agent(self) -> None:
        if self.agent is not None:
            return
        self.agents += 1
        self.agent = AgentMachine(
            SETTINGS, self._rule, boot=self.agents, now=self.now, entries=list(self.journal)
        )
        self._perform(self.agent.resume(self.now))
        self._tell(events.Connected())
        self._wake(self._life)

    def _wake(self, life: int) -> None:
        """Tells it the time when it wants to be told; now and then earlier or later."""
        if self.agent is None or life != self._life:
            return
        self._tell(events.Ticked(), life)
        self._sleep(life)

    def _sleep(self, life: int) -> None:
        if self.agent is None or life != self._life:
            return
        wake_at = self.agent.wake_at
        pause = 50.0 if wake_at is None else min(50.0, max(0.5, wake_at - self.now))
        asleep = max(0.0, self._agent_sleeps_until - self.now)
        self._at(self.now + pause + asleep, lambda: self._wake(life))

    def _tell(self, event: events.Event, life: int | None = None) -> None:
        if self.agent is not None and (life is None or life == self._life):
            self._perform(self.agent.handle(event, self.now))

    def _soon(self, event: events.Event) -> None:
        life, delay = self._life, self.random.choice((0.0, 0.1, 3.0))
        self._at(self.now + delay, lambda: self._tell(event, life))

    def _perform(self, wanted: list[Effect]) -> None:
        life, late = self._life, []
        for effect in wanted:
            if self.random.random() < self._crash:
                self._kill_agent()
                return
            if isinstance(effect, effects.Record):
                if self.bugs.records_come_late:
                    late.append(effect.entry)
                else:
                    self.journal.append(effect.entry)
            else:
                self._perform_one(effect)
            if life != self._life:
                return
        for entry in late:
            if self.random.random() < 10 * self._crash:
                self._kill_agent()
                return
            self.journal.append(entry)

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case effects.Submit(name, job):
                self._submit(name, job)
            case effects.CancelJobs(name):
                if self._controller_up:
                    for copy in self.copies:
                        if copy.name == name and copy.state.is_active:
                            self._end(copy, BatchState.CANCELLED, 143, by_agent=True)
            case effects.SeeQueue(look):
                self._soon(self._queue(look))
            case effects.SeeShare(name, _) | effects.Fence(name, _) if (
                self.random.random() < self._loss / 3
            ):
                self._soon(events.ShareFailed(name))
            case effects.SeeShare(name, job):
                seen = tuple(self._seen(name, index) for index in job.indexes)
                self._soon(events.ShareSeen(name, seen))
            case effects.Fence(name, job):
                won = self._fence(name, job)
                self.fenced |= {(name, index) for index in won}
                self._soon(events.FenceUp(name, won))
            case effects.Remove(name, job):
                if self.bugs.names_are_forgotten:
                    for index in job.indexes:
                        self.claims.pop((name, index), None)
            case effects.Report(name, _, outcome):
                self._to_origin(lambda: self._reported(name, outcome))
            case effects.Listing(number, attempts):
                self._to_origin(lambda: self._listed(number, attempts))
            case effects.AskStart(question, _):
                answers = (None, Estimate(7.0), Estimate(None, "no"))
                self._soon(events.Estimated(question, self.random.choice(answers)))
            case effects.AnswerBid(_, bid):
                self.bids.append(bid)
            case _:
                pass

    # ── the batch system

    def _submit(self, name: AttemptName, job: ClusterJob) -> None:
        chance = self.random.random()
        if not self._controller_up:
            self._soon(events.SubmitAnswered(name, BatchFailure.DOWN, "down"))
        elif chance < self._loss / 2:
            self._soon(events.SubmitAnswered(name, BatchFailure.FULL, "full"))
        elif chance < self._loss:  # nobody hears whether it arrives
            delay = self.random.choice((0.0, 5.0, 200.0))
            if self.random.random() < 0.7:
                self._at(self.now + delay, lambda: self._arrive(name, job))
            self._soon(events.SubmitAnswered(name, BatchFailure.SLOW, "slow"))
        elif job.nodes > 8:
            self._soon(events.SubmitAnswered(name, BatchFailure.REFUSED, "too large"))
        else:
            self._arrive(name, job)
            self._soon(events.SubmitAnswered(name))

    def _arrive(self, name: AttemptName, job: ClusterJob) -> None:
        if self._controller_up and job.nodes <= 8:
            number = next(self._numbers)
            self.copies += [Copy(name, index, number) for index in job.indexes]

    def _queue(self, look: int) -> events.Event:
        if not self._controller_up or self.random.random() < self._loss:
            return events.QueueUnseen(look, BatchFailure.DOWN, "down")
        entries = tuple(
            BatchEntry(one.name, one.index, one.state, str(one.number)) for one in self.copies
        )
        busy = sum(one.runs for one in self.copies)
        pending = sum(one.state is BatchState.PENDING for one in self.copies)
        return events.QueueSeen(
            look, entries, Capacity(max(0, self._slots - busy), self._slots, pending)
        )

    def _batch_works(self) -> None:
        self._at(self.now + self.random.uniform(1, 10), self._batch_works)
        if not self._controller_up:
            return
        self.copies = [
            one
            for one in self.copies
            if one.state.is_active or self.now - one.ended_at < FORGET_SECONDS
        ]
        free = self._slots - sum(one.runs for one in self.copies)
        for copy in self.copies:
            if free > 0 and copy.state is BatchState.PENDING:
                free -= 1
                self._start(copy)

    def _start(self, copy: Copy) -> None:
        """What the script does: claims, runs, leaves its exit code."""
        key = (copy.name, copy.index)
        copy.state = BatchState.RUNNING
        if key in self.claims and not self.bugs.scripts_do_not_claim:
            self._at(self.now + 0.1, lambda: self._end(copy, BatchState.COMPLETED, None))
            return
        late = self.random.uniform(0, LATE_FILE_SECONDS)
        self.claims[key] = Claim(fence=False, seen_at=self.now + late)
        self.runs[key] += 1
        if key in self.fenced:
            self.complaints.append(f"{copy.name}.{copy.index} ran after it was fenced off")
        copy.runs = True
        code = self.random.choice((0, 0, 0, 1))
        length = self.random.choice((1.0, 30.0, 400.0))
        ended = BatchState.FAILED if code else BatchState.COMPLETED
        self._at(self.now + length, lambda: self._end(copy, ended, code))

    def _end(
        self, copy: Copy, state: BatchState, code: int | None, *, by_agent: bool = False
    ) -> None:
        """`code` None: without a word."""
        if not copy.state.is_active:
            return
        claim = self.claims.get((copy.name, copy.index))
        if copy.runs and claim is not None and not claim.fence:
            if code is None and not by_agent:
                self.killed.add(copy.name)
            if code is not None:
                claim.code = code
                claim.code_seen_at = self.now + self.random.uniform(0, LATE_FILE_SECONDS)
                self._codes[copy.name, copy.index] = code
        copy.state, copy.runs, copy.ended_at = state, False, self.now

    # ── the shared folder

    def _seen(self, name: AttemptName, index: int) -> ElementSeen:
        claim = self.claims.get((name, index))
        if claim is None or claim.fence or claim.seen_at > self.now:
            return ElementSeen(claimed=False)
        return ElementSeen(True, claim.code if claim.code_seen_at <= self.now else None)

    def _fence(self, name: AttemptName, job: ClusterJob) -> frozenset[int]:
        if self.bugs.fences_are_not_put_up:
            return frozenset(index for index in job.indexes if (name, index) not in self.claims)
        won = set()
        for index in job.indexes:
            claim = self.claims.setdefault((name, index), Claim(fence=True, seen_at=self.now))
            if claim.fence:
                won.add(index)
        return frozenset(won)

    # ── the origin

    def _to_origin(self, act: Callable[[], None]) -> None:
        if self._linked and self.random.random() >= self._loss:
            self._at(self.now + self.random.choice((0.0, 0.2, 20.0)), act)

    def _to_agent(self, event: events.Event) -> None:
        for _ in range(1 + (self.random.random() < self._loss)):
            if self._linked and self.random.random() >= self._loss:
                delay = self.random.choice((0.0, 0.2, 20.0))
                self._at(self.now + delay, lambda: self._tell(event))

    def _wish(self, number: int) -> None:
        elements = self.random.choice((0, 0, 0, 3))
        nodes = self.random.choice((1, 1, 1, 1, 1, 9))
        job = ClusterJob(command=("x",), elements=elements, nodes=nodes, priority=number % 3)
        name = AttemptName(f"a{number}")
        self.wishes[name] = Wish(name, job)
        self._to_agent(events.Assigned(name, job))
        self._to_agent(events.Asked(number, job))
        if self.random.random() < 0.2:
            later = self.now + self.random.choice((0.0, 30.0, 500.0))
            self._at(later, lambda: self._cancel(self.wishes[name]))

    def _cancel(self, wish: Wish) -> None:
        wish.cancelled = True
        self._to_agent(events.Cancel(wish.name))

    def _origin_works(self) -> None:
        self._at(self.now + 20.0, self._origin_works)
        if self.agent is not None and self._linked and self._agent_sleeps_until <= self.now:
            self._heard_at = self.now
            self._to_agent(events.Renewed(self.now))
        if self.now - self._heard_at > SETTINGS.lease_seconds + 60:
            for wish in self.wishes.values():
                wish.elsewhere = wish.elsewhere or wish.outcome is None
        for wish in self.wishes.values():
            if wish.is_current and wish.cancelled:
                self._to_agent(events.Cancel(wish.name))

    def _listed(self, number: int, attempts: tuple[AttemptName, ...]) -> None:
        current = frozenset(wish.name for wish in self.wishes.values() if wish.is_current)
        self._to_agent(events.Confirmed(number, current))
        if self.random.random() < self._loss:
            self._at(self.now + 300, lambda: self._to_agent(events.Confirmed(number, current)))
        for name in current - frozenset(attempts):
            self._to_agent(events.Assigned(name, self.wishes[name].job))
        # What was lost is asked for again.
        self._at(self.now + 100, self._ask_again)

    def _ask_again(self) -> None:
        for wish in self.wishes.values():
            if wish.is_current:
                self._to_agent(events.Assigned(wish.name, wish.job))

    def _reported(self, name: AttemptName, outcome: Outcome) -> None:
        wish = self.wishes[name]
        if wish.is_current:
            wish.outcome = outcome
            if self.random.random() < 0.3:  # an old message is still on its way
                late = self.now + self.random.choice((30.0, 2000.0))
                self._at(late, lambda: self._tell(events.Assigned(name, wish.job)))
        self._to_agent(events.Acknowledged(name))

    # ── the judge

    def _judge(self) -> None:
        for (name, index), count in self.runs.items():
            if count > 1:
                self.complaints.append(f"{name}.{index} ran {count} times")
        self.complaints += [f"{name} never came to an end" for name in self._open()]
        for wish in self.wishes.values():
            if wish.outcome is not None:
                self._judge_outcome(wish, wish.outcome)
        active = {one.name for one in self.copies if one.runs}
        self.complaints += [f"{name} still runs" for name in sorted(active)]

    def _judge_outcome(self, wish: Wish, outcome: Outcome) -> None:
        name, state = wish.name, outcome.state
        ran = [self.runs[name, index] for index in wish.job.indexes]
        codes = [self._codes.get((name, index)) for index in wish.job.indexes]
        wrong = ""
        if state is OutcomeState.RETURNED and any(ran):
            wrong = "ran, and was given back"
        elif state is OutcomeState.SUCCEEDED and codes != [0] * len(codes):
            wrong = f"succeeded with {codes}"
        elif state is OutcomeState.FAILED and (None in codes or not any(codes)):
            wrong = f"failed with {codes}"
        elif state is OutcomeState.LOST and name not in self.killed:
            wrong = "is lost, though nothing killed it"
        elif state is OutcomeState.CANCELLED and not wish.cancelled and name not in self.killed:
            wrong = "is cancelled, though nobody wanted it"
        elif state is OutcomeState.PARTIAL and all(ran):
            wrong = "has run whole, and is called partial"
        if wrong:
            self.complaints.append(f"{name} {wrong} ({outcome})")
