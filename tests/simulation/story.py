"""The story of one seed, event by event, for whoever looks for its fault."""

from __future__ import annotations

from mycel.core.effects import Effect, Send
from mycel.core.events import Event, HeartbeatReceived, Received, Restart, Tick

from . import processes
from .judge import judge
from .world import World


def tell(seed: int) -> list[str]:
    """Runs the seed, prints what each machine was told and did, and returns the complaints."""
    world = World(seed)
    plain = processes.Checked

    class Telling(plain):  # type: ignore[misc, valid-type]
        def handle(self, event: Event, now: float) -> list[Effect]:
            effects: list[Effect] = super().handle(event, now)
            if effects or not isinstance(event, Tick | HeartbeatReceived):
                who = getattr(self._machine, "name", "scheduler")
                did = ", ".join(_effect(effect) for effect in effects)
                print(f"{world.clock.now() - 1000:9.4f} {who:10} {_event(event)} -> {did}")
            return effects

    processes.Checked = Telling  # type: ignore[misc]
    try:
        world.run()
    except AssertionError as error:
        return [*world.history.complaints, str(error)]
    finally:
        processes.Checked = plain  # type: ignore[misc]
    return judge(world)


def _event(event: Event) -> str:
    if isinstance(event, Received):
        return f"<- {event.peer}: {event.message!s:.160}"
    if isinstance(event, Restart):
        return f"Restart boot={event.boot}"
    return f"{event!s:.160}"


def _effect(effect: Effect) -> str:
    if isinstance(effect, Send):
        return f"{type(effect.message).__name__} to {effect.peer}"
    return f"{type(effect).__name__}"
