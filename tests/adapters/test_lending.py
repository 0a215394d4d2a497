"""What a machine says of its use, and when its owner is away."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mycel.core.events import Event, Reopen, Shut, UsageChanged
from mycel.core.model.resources import USAGE_STEPS, Usage
from mycel.devices import user_activity
from mycel.devices.machine_usage import CoreSeconds, Meter, OthersMeter, share_of_others, steps
from mycel.roles.worker import idle_lending
from mycel.roles.worker.idle_lending import PRESENT, IdleSettings, Lending

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_meter_tells_sixteenths() -> None:
    meter = Meter(has_gpus=True)
    usage = meter.look()
    assert 0 <= usage.cpu <= USAGE_STEPS
    assert abs(usage.memory - steps(psutil.virtual_memory().percent / 100)) <= 1
    assert [steps(share) for share in (-1.0, 0.03, 0.5, 2.0)] == [0, 0, 8, 16]


def test_the_work_of_our_descendants_is_ours() -> None:
    meter = OthersMeter(os.getpid())
    before = meter.times().ours
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert 0.25 <= meter.times().ours - before < 5.0


def test_what_neither_is_idle_nor_ours_is_that_of_others() -> None:
    before = CoreSeconds(100.0, 50.0, 10.0)
    assert share_of_others(before, CoreSeconds(110.0, 52.0, 13.0)) == 0.5
    assert share_of_others(before, CoreSeconds(110.0, 52.0, 90.0)) == 0.0
    assert share_of_others(before, before) == 0.0


def test_nobody_has_used_a_machine_without_signs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(psutil, "users", list)
    assert user_activity.idle_seconds(run=lambda command: "", input_devices=tmp_path) == math.inf


@pytest.mark.parametrize(
    ("session", "idle"),
    [
        ("Type=wayland\nActive=yes\nIdleHint=no", 0.0),
        ("Type=x11\nActive=yes\nIdleHint=yes\nIdleSinceHint=400000000", 600.0),
        ("Type=tty\nActive=yes\nIdleHint=no", math.inf),
        ("Type=x11\nActive=no\nIdleHint=no", math.inf),
    ],
)
def test_graphical_sessions_say_whether_they_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, session: str, idle: float
) -> None:
    monkeypatch.setattr(psutil, "users", list)

    def run(command: list[str]) -> str:
        return "7 1000 ada seat0\n" if command[1] == "--no-legend" else session

    assert user_activity.idle_seconds(lambda: 1000.0, run, tmp_path) == idle


def test_an_input_device_that_was_read_is_a_sign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(psutil, "users", list)
    (tmp_path / "event3").touch()
    os.utime(tmp_path / "event3", (900.0, 900.0))
    assert user_activity.idle_seconds(lambda: 1000.0, lambda command: "", tmp_path) == 100.0


class Steady:
    def look(self) -> Usage:
        return Usage(1, 2)


def test_a_worker_is_shut_until_the_command_says_that_its_owner_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(idle_lending, "LOOK_SECONDS", 0.01)
    told: list[Event] = []
    away = tmp_path / "away"

    async def play() -> None:
        news = asyncio.Event()

        def tell(event: Event) -> None:
            told.append(event)
            news.set()

        async def until(count: int) -> None:
            async with asyncio.timeout(20):
                while len(told) < count:
                    news.clear()
                    await news.wait()

        settings = IdleSettings(command=f"test -e {away}", hand_back_after_seconds=3.0)
        one = Lending(tell, Steady(), settings, lambda event, **fields: None)
        one.start()
        await until(2)
        away.touch()
        await until(3)
        away.unlink()
        await until(4)
        await one.stop()

    asyncio.run(play())
    shut = Shut("owner", PRESENT, 3.0)
    assert told == [shut, UsageChanged(Usage(1, 2)), Reopen("owner"), shut]


def test_who_cannot_tell_lends_nothing() -> None:
    assert idle_lending.Looks(IdleSettings(command="exit 3")).reason() == PRESENT
    assert idle_lending.Looks(IdleSettings(command="no-such-program-here")).reason() == PRESENT
    assert idle_lending.Looks(IdleSettings(command="exit 0")).reason() == ""


def test_an_owner_at_work_is_there_and_so_are_busy_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = idle_lending.Looks(IdleSettings(idle_minutes=1.0, others_load_max=0.5))
    monkeypatch.setattr(OthersMeter, "look", lambda self: 0.4)
    monkeypatch.setattr(user_activity, "idle_seconds", lambda: 59.0)
    assert looks.reason() == PRESENT
    monkeypatch.setattr(user_activity, "idle_seconds", lambda: 61.0)
    assert looks.reason() == ""
    monkeypatch.setattr(OthersMeter, "look", lambda self: 0.6)
    assert looks.reason() == idle_lending.BUSY
