"""Workers that can be dialled elsewhere than when they registered."""

from __future__ import annotations

from mycel.core import events
from mycel.core.effects import Dial, Send
from mycel.core.identifiers import PeerId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Described
from mycel.core.model.resources import Ledger
from mycel.core.worker import WorkerMachine

from .test_calling import SMALL, Stage, assigned, kinds

SCHEDULER = PeerId("scheduler")
DIRECT = "/ip4/192.168.1.7/tcp/4001/p2p/w"
THROUGH = "/ip4/198.51.100.1/tcp/4001/p2p/gateway/p2p-circuit/p2p/w"


def test_a_worker_tells_those_with_a_link_of_a_new_way_to_it_once() -> None:
    worker = WorkerMachine(WorkerSettings(), SMALL, name="w", digest=lambda value: b"")
    worker.handle(events.SpoolLoaded(1, {}), 0.0)
    assert worker.handle(events.Reachable((DIRECT,)), 0.0) == [], "nobody is there"
    worker.handle(events.LinkUp(SCHEDULER), 0.0)
    told = worker.handle(events.Reachable((DIRECT, THROUGH)), 1.0)
    free = Ledger(SMALL).free
    moved = Described(SMALL, free, (DIRECT, THROUGH), load_follows=True)
    assert told == [Send(SCHEDULER, moved)]
    assert worker.handle(events.Reachable((DIRECT, THROUGH)), 2.0) == []


def test_a_worker_is_dialled_where_it_said_last() -> None:
    stage = Stage()
    stage.tell(events.LinkUp(PeerId("w")))
    stage.register("w")
    assert assigned(stage.submit()) == ["w"]
    moved = Described(SMALL, Ledger(SMALL).free, (DIRECT, THROUGH))
    assert stage.tell(events.Received(PeerId("w"), moved, stage.now)) == []
    served = Described(SMALL, Ledger(SMALL).free)
    stage.tell(events.Received(PeerId("w"), served, stage.now))
    effects = stage.tell(events.LinkDown(PeerId("w"), "it was lost"))
    assert kinds(effects, Dial) == [Dial(PeerId("w"), (DIRECT, THROUGH))]
