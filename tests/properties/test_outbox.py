"""Nothing leaves before what it stands on is on disk, and everything leaves in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.effects import Effect, Note, Record, SendAhead
from mycel.core.identifiers import JobNumber, LeaseId, PeerId
from mycel.core.journal import JobClosed
from mycel.core.messages import Renew
from mycel.runtime.outbox import GROUP_ENTRIES_MAX, Outbox

RENEWAL = SendAhead(PeerId("worker"), Renew(0.0, LeaseId(0)))

kinds = st.lists(st.sampled_from(("note", "record", "renewal")), max_size=8)
steps = st.lists(st.one_of(kinds, st.just("take"), st.just("commit")), max_size=40)


@given(steps)
def test_an_effect_waits_for_every_record_before_it(story: list[list[str] | str]) -> None:
    outbox = Outbox()
    number = 0
    put: list[tuple[str, int]] = []
    on_disk: set[int] = set()
    under_way: list[int] = []
    left: list[int] = []

    def released(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendAhead):
                continue
            assert isinstance(effect, Note)
            mine = effect.fields["number"]
            assert isinstance(mine, int)
            before = {one for kind, one in put if kind == "record" and one < mine}
            assert before <= on_disk, "it left before its commit"
            left.append(mine)

    for step in story:
        if isinstance(step, list):
            effects: list[Effect] = []
            for kind in step:
                number += 1
                put.append((kind, number))
                if kind == "note":
                    effects.append(Note("x", {"number": number}))
                elif kind == "record":
                    effects.append(Record([JobClosed(JobNumber(number))]))
                else:
                    effects.append(RENEWAL)
            out = outbox.put(effects)
            assert out.count(RENEWAL) == step.count("renewal"), "renewals overtake"
            released(out)
        elif step == "take" and not outbox.is_committing:
            under_way = [entry.job for entry in outbox.take_group()]  # type: ignore[union-attr]
        elif step == "commit" and outbox.is_committing:
            on_disk.update(under_way)
            released(outbox.committed())
    while not outbox.is_empty:
        if not outbox.is_committing:
            under_way = [entry.job for entry in outbox.take_group()]  # type: ignore[union-attr]
        on_disk.update(under_way)
        released(outbox.committed())
    assert left == [one for kind, one in put if kind == "note"], "in order, and all of them"


def test_a_group_has_a_limit() -> None:
    outbox = Outbox()
    large = [JobClosed(JobNumber(1))] * (GROUP_ENTRIES_MAX - 1)
    outbox.put([Record(list(large)), Record(list(large))])
    assert len(outbox.take_group()) == GROUP_ENTRIES_MAX - 1
    assert outbox.take_group() == [], "one group at a time"
    outbox.committed()
    assert len(outbox.take_group()) == GROUP_ENTRIES_MAX - 1


def test_a_record_over_the_limit_still_goes() -> None:
    outbox = Outbox()
    outbox.put([Record([JobClosed(JobNumber(1))] * (GROUP_ENTRIES_MAX + 1))])
    assert len(outbox.take_group()) == GROUP_ENTRIES_MAX + 1
