"""The agent of a cluster: takes jobs from an origin, hands them to the batch system, brings back
how they ended. It is pure: events in, effects out, time as an argument.

Three rules keep it from running anything twice and from losing anything:

1. The intent is recorded before a submission. What was intended may be anywhere.
2. Whether something has begun, and how it ended, only the shared folder says. The batch system is
   believed when it lists something, not when it does not.
3. Nothing is said to have not run before a fence has made sure that it never will.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from . import agent_effects as effects
from . import agent_events as events
from .accept_rules import AcceptRule, Room, WaitingJob
from .agent_effects import Effect
from .agent_settings import AgentSettings
from .attempts import (
    Attempt,
    AttemptName,
    AttemptState,
    Cause,
    ElementSeen,
    Outcome,
    OutcomeState,
    Step,
)
from .batch_jobs import BatchEntry, BatchFailure, BatchState, Capacity, ClusterJob
from .bids import OpenQuestions, bid_of
from .origin_lease import OriginLease
from .verdicts import verdict_of

BY_ACCIDENT: Final = frozenset({BatchState.NODE_FAILED, BatchState.FAILED, BatchState.PREEMPTED})
"""What ended so before it began is worth another try."""


class AgentMachine:
    """`entries` is what the journal holds, from its beginning. `boot` is greater each time."""

    def __init__(
        self,
        settings: AgentSettings,
        rule: AcceptRule,
        *,
        boot: int,
        now: float,
        entries: Iterable[effects.Entry] = (),
    ) -> None:
        self._settings = settings
        self._rule = rule
        self._attempts: dict[AttemptName, Attempt] = {}
        self._forgotten: OrderedDict[AttemptName, None] = OrderedDict()
        self._effects: list[Effect] = []
        self._lease = OriginLease(boot, settings.lease_seconds, now)
        self._looks = 0
        self._look_at: float | None = now
        """None while one is under way."""
        self._capacity: Capacity | None = None
        self._questions = OpenQuestions(settings.questions_max)
        for entry in entries:
            self._restore(entry, now)

    # ── what others may ask

    @property
    def attempts(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    @property
    def wake_at(self) -> float | None:
        """When it wants to be told the time."""
        times = [self._lease.ends_at] if self._lease.is_held else []
        if self._look_at is not None and self._has_reason_to_look():
            times.append(self._look_at)
        for attempt in self._attempts.values():
            if attempt.state is AttemptState.WAITING:
                times.append(attempt.assigned_at + self._settings.patience_seconds)
            elif attempt.state is AttemptState.INTENDED and attempt.submit_at is not None:
                times.append(attempt.submit_at)
            elif attempt.state is AttemptState.ENDED and self._lease.is_confirmed:
                times.append(attempt.report_at)
        return min(times, default=None)

    def handle(self, event: events.Event, now: float) -> list[Effect]:
        match event:
            case events.Assigned(name, job):
                self._assigned(name, job, now)
            case events.Cancel(name):
                self._cancel(name, now)
            case events.Acknowledged(name):
                self._acknowledged(name)
            case events.Connected():
                self._list()
            case events.Renewed(sent_at):
                if self._lease.renew(sent_at, now):
                    self._list()
            case events.Confirmed(listing, current):
                self._on_confirmed(listing, current, now)
            case events.SubmitAnswered(name, failure, text):
                self._submit_answered(name, failure, text, now)
            case events.QueueSeen(look, entries, capacity):
                self._queue_seen(look, entries, capacity, now)
            case events.QueueUnseen(look):
                if look == self._looks:
                    self._capacity = None
                    self._look_at = now + self._settings.retry_seconds
            case events.ShareSeen(name, elements):
                self._share_seen(name, elements, now)
            case events.FenceUp(name, won):
                self._fence_up(name, won, now)
            case events.ShareFailed(name):
                self._share_failed(name)
            case events.Asked(question, job):
                self._asked(question, job)
            case events.Estimated(question, estimate):
                bid = self._questions.answer(question, estimate, self._capacity)
                if bid is not None:
                    self._do(effects.AnswerBid(question, bid))
            case events.Ticked():
                pass
        self._time_passes(now)
        done, self._effects = self._effects, []
        return done

    # ── the journal

    def _restore(self, entry: effects.Entry, now: float) -> None:
        """What was intended counts as submitted: the queue and the folder will tell."""
        match entry:
            case effects.Intended(name, job):
                self._attempts[name] = Attempt(name, job, AttemptState.SUBMITTED, now, now)
            case effects.Closing(name, cause, text):
                attempt = self._attempts[name]
                attempt.state = AttemptState.CLOSING
                attempt.cause, attempt.text = Cause(cause), text
            case effects.Ended(name, job, outcome):
                attempt = Attempt(name, job, AttemptState.ENDED, now, now, outcome=outcome)
                self._attempts[name] = attempt
            case effects.Forgotten(name):
                self._attempts.pop(name, None)
                self._remember_forgotten(name)

    def resume(self, now: float) -> list[Effect]:
        """The first thing after a start: goes on with what was being closed."""
        for attempt in self._attempts.values():
            if attempt.state is AttemptState.CLOSING:
                self._put_up_fence(attempt)
        return self.handle(events.Ticked(), now)

    def _forget(self, attempt: Attempt) -> None:
        self._do(effects.Record(effects.Forgotten(attempt.name)))
        self._do(effects.Remove(attempt.name, attempt.job))
        del self._attempts[attempt.name]
        self._remember_forgotten(attempt.name)

    def _remember_forgotten(self, name: AttemptName) -> None:
        self._forgotten[name] = None
        while len(self._forgotten) > self._settings.forgotten_max:
            self._forgotten.popitem(last=False)

    # ── the origin

    def _assigned(self, name: AttemptName, job: ClusterJob, now: float) -> None:
        known = self._attempts.get(name)
        if known is not None:
            if known.state is AttemptState.ENDED:
                self._report(known, now)
        elif name not in self._forgotten:
            attempt = Attempt(name, job, AttemptState.WAITING, now, now)
            self._attempts[name] = attempt
            waiting = sum(one.state is AttemptState.WAITING for one in self._attempts.values())
            if waiting > self._settings.waiting_max:
                self._finish(attempt, _returned(Cause.FULL), now)

    def _cancel(self, name: AttemptName, now: float) -> None:
        attempt = self._attempts.get(name)
        if attempt is None:
            return
        if attempt.state is AttemptState.WAITING:
            self._finish(attempt, Outcome(OutcomeState.CANCELLED, Cause.CANCELLED), now)
        elif attempt.is_out:
            self._close(attempt, Cause.CANCELLED, "", now)

    def _acknowledged(self, name: AttemptName) -> None:
        attempt = self._attempts.get(name)
        if attempt is not None and attempt.state is AttemptState.ENDED:
            self._forget(attempt)

    def _list(self) -> None:
        number = self._lease.list(self._attempts)
        self._do(effects.Listing(number, tuple(self._attempts)))

    def _on_confirmed(self, listing: int, current: frozenset[AttemptName], now: float) -> None:
        """What is not current any more is ended; what has ended is reported again."""
        listed = self._lease.confirm(listing)
        if listed is None:
            return
        for name in listed - current:
            attempt = self._attempts.get(name)
            if attempt is None:
                continue
            if attempt.state is AttemptState.WAITING:
                del self._attempts[name]
            elif attempt.state is AttemptState.ENDED:
                self._forget(attempt)
            else:
                self._close(attempt, Cause.OUTDATED, "", now)
        for attempt in self._attempts.values():
            if attempt.state is AttemptState.ENDED:
                self._report(attempt, now)

    def _report(self, attempt: Attempt, now: float) -> None:
        assert attempt.outcome is not None
        attempt.report_at = now + self._settings.report_seconds
        self._do(effects.Report(attempt.name, attempt.job, attempt.outcome))

    def _is_report_due(self, attempt: Attempt, now: float) -> bool:
        return self._lease.is_confirmed and now >= attempt.report_at

    # ── time

    def _time_passes(self, now: float) -> None:
        if self._lease.end(now):
            self._lease_ended(now)
        for attempt in list(self._attempts.values()):
            if attempt.state is AttemptState.WAITING:
                if now >= attempt.assigned_at + self._settings.patience_seconds:
                    self._finish(attempt, _returned(Cause.IMPATIENT), now)
            elif attempt.state is AttemptState.INTENDED:
                if attempt.submit_at is not None and now >= attempt.submit_at:
                    self._submit(attempt)
            elif attempt.state is AttemptState.ENDED and self._is_report_due(attempt, now):
                self._report(attempt, now)
        self._accept(now)
        if self._look_at is not None and now >= self._look_at and self._has_reason_to_look():
            self._looks += 1
            self._look_at = None
            self._do(effects.SeeQueue(self._looks))

    def _has_reason_to_look(self) -> bool:
        return any(attempt.state is not AttemptState.ENDED for attempt in self._attempts.values())

    def _lease_ended(self, now: float) -> None:
        """What runs goes on. What has not begun shall not: the origin counts on us no more."""
        for attempt in list(self._attempts.values()):
            if attempt.state is AttemptState.WAITING:
                del self._attempts[attempt.name]
            elif attempt.state in (AttemptState.INTENDED, AttemptState.SUBMITTED):
                self._close(attempt, Cause.LEASE_ENDED, "", now)

    # ── submission

    def _accept(self, now: float) -> None:
        """Only with a lease, and a batch system that answers."""
        waiting = [one for one in self._attempts.values() if one.state is AttemptState.WAITING]
        if not waiting or not self._lease.is_confirmed or self._capacity is None:
            return
        out = [one for one in self._attempts.values() if one.is_out]
        elements = sum(len(one.job.indexes) for one in out)
        not_begun = sum(one.job.cores for one in out if one.began_at is None)
        room = Room(self._settings.out_max - elements, self._capacity.idle_cores - not_begun)
        offered = [WaitingJob(one.name, one.job, now - one.assigned_at) for one in waiting]
        left = room.elements
        for name in self._rule(offered, room):
            attempt = self._attempts[name]
            left -= len(attempt.job.indexes)
            if left < 0:
                break
            attempt.take(Step.ACCEPT, now)
            self._do(effects.Record(effects.Intended(name, attempt.job)))
            self._submit(attempt)

    def _submit(self, attempt: Attempt) -> None:
        attempt.submit_at = None
        attempt.submissions += 1
        self._do(effects.Submit(attempt.name, attempt.job))

    def _submit_answered(
        self, name: AttemptName, failure: BatchFailure | None, text: str, now: float
    ) -> None:
        attempt = self._attempts.get(name)
        if attempt is None or attempt.state is not AttemptState.INTENDED:
            return
        attempt.take(Step.ARRIVE, now)
        attempt.judged_after = self._looks
        attempt.text = text
        if failure is not None and failure.is_final:
            self._close(attempt, Cause.REFUSED, text, now)
        elif failure is not None and (now - attempt.assigned_at >= self._settings.patience_seconds):
            self._close(attempt, Cause.IMPATIENT, text, now)

    # ── what the batch system and the folder say

    def _queue_seen(
        self, look: int, entries: tuple[BatchEntry, ...], capacity: Capacity, now: float
    ) -> None:
        if look != self._looks:
            return
        self._look_at = now + self._settings.look_seconds
        self._capacity = capacity
        by_name: dict[AttemptName, list[BatchEntry]] = defaultdict(list)
        for entry in entries:
            by_name[AttemptName(entry.name)].append(entry)
        for attempt in list(self._attempts.values()):
            if attempt.is_out and attempt.judged_after < look:
                self._follow(attempt, by_name.get(attempt.name, []), now)
        for name, found in by_name.items():
            known = self._attempts.get(name)
            over = known is None or known.state is AttemptState.ENDED
            if over and any(entry.state.is_active for entry in found):
                self._do(effects.CancelJobs(name))

    def _follow(self, attempt: Attempt, entries: list[BatchEntry], now: float) -> None:
        if attempt.needs_fence and attempt.state is AttemptState.CLOSING:
            self._put_up_fence(attempt)
            return
        fenced_off = attempt.fenced or frozenset()
        active = [one for one in entries if one.state.is_active and one.index not in fenced_off]
        if active:
            self._show(attempt, active, now)
            attempt.settling_since = None
            if attempt.state is AttemptState.CLOSING:
                if attempt.cause.kills:
                    self._do(effects.CancelJobs(attempt.name))
            elif attempt.state is AttemptState.INTENDED:
                if attempt.submit_at is not None:  # it had arrived after all
                    attempt.take(Step.ARRIVE, now)
            elif all(entry.state is BatchState.HOPELESS for entry in active):
                self._close(attempt, Cause.HOPELESS, active[0].reason, now)
        elif attempt.state is not AttemptState.INTENDED and not attempt.asks_share:
            attempt.ended_as = frozenset(entry.state for entry in entries)
            attempt.asks_share = True
            self._do(effects.SeeShare(attempt.name, attempt.job))

    def _show(self, attempt: Attempt, active: list[BatchEntry], now: float) -> None:
        running = [entry for entry in active if entry.state is BatchState.RUNNING]
        if running and attempt.began_at is None:
            attempt.began_at = now
            self._questions.history.note(now - attempt.since)
        told = (running or active)[0]
        if told.state is not attempt.shown:
            attempt.shown = told.state
            self._do(effects.Progress(attempt.name, told.state, told.reason))

    def _share_seen(self, name: AttemptName, elements: tuple[ElementSeen, ...], now: float) -> None:
        """Read after a look at the queue that showed nothing of it active."""
        attempt = self._attempts.get(name)
        if attempt is None or not attempt.is_out:
            return
        attempt.asks_share = False
        if attempt.state is AttemptState.INTENDED:
            return
        fenced_off = attempt.fenced or frozenset()
        open_ones = [seen for index, seen in enumerate(elements) if index not in fenced_off]
        begun = [seen for seen in open_ones if seen.claimed]
        if all(seen.exit_code is not None for seen in open_ones):
            self._conclude(attempt, elements, now)
        elif any(seen.exit_code is None for seen in begun) or (
            attempt.ended_as and attempt.state is AttemptState.SUBMITTED
        ):
            self._settle(attempt, elements, now)
        elif attempt.state is AttemptState.CLOSING:
            self._put_up_fence(attempt)
        else:
            self._vanished(attempt, Cause.VANISHED, now)

    def _share_failed(self, name: AttemptName) -> None:
        """The next look at the queue tries again."""
        attempt = self._attempts.get(name)
        if attempt is not None:
            attempt.asks_share = False
            attempt.needs_fence = attempt.state is AttemptState.CLOSING and attempt.fenced is None

    def _vanished(self, attempt: Attempt, cause: Cause, now: float) -> None:
        """Nothing of it is out, and something of it has not begun."""
        if attempt.submissions >= self._settings.submissions_max:
            self._close(attempt, cause, attempt.text, now)
        else:
            attempt.take(Step.VANISH, now)
            attempt.settling_since = None
            attempt.submit_at = now + self._settings.retry_seconds

    def _settle(self, attempt: Attempt, elements: tuple[ElementSeen, ...], now: float) -> None:
        """A network file system may show an exit code later than the queue shows the end."""
        if attempt.settling_since is None:
            attempt.settling_since = now
        if now - attempt.settling_since < self._settings.settle_seconds:
            return
        attempt.text = attempt.text or ", ".join(sorted(one.value for one in attempt.ended_as))
        if attempt.fenced is not None:
            self._conclude(attempt, elements, now)
        elif any(seen.claimed for seen in elements):
            self._close(attempt, Cause.KILLED, attempt.text, now)
        elif attempt.ended_as <= BY_ACCIDENT:
            self._vanished(attempt, Cause.SITE, now)
        else:  # somebody at the site may have meant it
            self._close(attempt, Cause.SITE, attempt.text, now)

    # ── the end

    def _close(self, attempt: Attempt, cause: Cause, text: str, now: float) -> None:
        """A stronger cause replaces one that would have let things go on."""
        if attempt.state is AttemptState.CLOSING:
            if attempt.cause.kills or not cause.kills:
                return
        else:
            attempt.take(Step.CLOSE, now)
        attempt.cause, attempt.text = cause, text
        attempt.judged_after = self._looks
        self._do(effects.Record(effects.Closing(attempt.name, cause.value, text)))
        self._put_up_fence(attempt)

    def _put_up_fence(self, attempt: Attempt) -> None:
        attempt.needs_fence = False
        self._do(effects.Fence(attempt.name, attempt.job))
        if attempt.cause.kills:
            self._do(effects.CancelJobs(attempt.name))

    def _fence_up(self, name: AttemptName, won: frozenset[int], now: float) -> None:
        attempt = self._attempts.get(name)
        if attempt is None or attempt.state is not AttemptState.CLOSING:
            return
        attempt.fenced = won
        if len(won) == len(attempt.job.indexes):
            self._conclude(attempt, (ElementSeen(claimed=False),) * len(won), now)
        elif not attempt.cause.kills:
            attempt.take(Step.REOPEN, now)
            attempt.judged_after = self._looks

    def _conclude(self, attempt: Attempt, elements: tuple[ElementSeen, ...], now: float) -> None:
        if attempt.fenced:  # copies that would begin only to stop
            self._do(effects.CancelJobs(attempt.name))
        outcome = verdict_of(attempt, elements)
        if attempt.cause is Cause.OUTDATED:
            self._forget(attempt)
        else:
            self._finish(attempt, outcome, now)

    def _finish(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        attempt.take(Step.FINISH, now)
        attempt.outcome = outcome
        self._do(effects.Record(effects.Ended(attempt.name, attempt.job, outcome)))
        self._report(attempt, now)

    # ── bids

    def _asked(self, question: int, job: ClusterJob) -> None:
        if (late := self._questions.ask(question, job)) is not None:
            bid = bid_of(late[1], None, self._questions.history, self._capacity)
            self._do(effects.AnswerBid(late[0], bid))
        self._do(effects.AskStart(question, job))

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)


def _returned(cause: Cause, text: str = "") -> Outcome:
    return Outcome(OutcomeState.RETURNED, cause, (), text)
