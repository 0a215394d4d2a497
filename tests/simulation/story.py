"""The story of one seed, event by event, for whoever looks for its fault."""

from __future__ import annotations

from mycel.core.effects import Effect, Send, SendAhead
from mycel.core.events import Event, HeartbeatReceived, Received, Restart, Tick

from .judge import judge
from .processes import Checked
from .world import World


def tell(seed: int) -> list[str]:
    """Runs the seed, prints what each machine was told and did, and returns the complaints."""
    world = World(seed)
    plain = Checked.handle

    def handle(self: Checked, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        effects = plain(self, event, now, more=more)
        if effects or not isinstance(event, Tick | HeartbeatReceived):
            who = getattr(self.machine, "name", "scheduler")
            did = ", ".join(_effect(effect) for effect in effects)
            print(f"{world.clock.now() - 1000:9.4f} {who:10} {_event(event)} -> {did}")
        return effects

    Checked.handle = handle  # type: ignore[method-assign]
    try:
        world.run()
    except AssertionError as error:
        return [*world.history.complaints, str(error)]
    finally:
        Checked.handle = plain  # type: ignore[method-assign]
    return judge(world)


def _event(event: Event) -> str:
    if isinstance(event, Received):
        return f"<- {event.peer}: {event.message!s:.160}"
    if isinstance(event, Restart):
        return f"Restart boot={event.boot}"
    return f"{event!s:.160}"


def _effect(effect: Effect) -> str:
    if isinstance(effect, (Send, SendAhead)):
        return f"{type(effect).__name__} {type(effect.message).__name__} to {effect.peer}"
    return f"{type(effect).__name__}"
