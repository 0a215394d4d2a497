"""Our own drivers as subjects of the conformance suite, and functions for `python` to call."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mycel.core.model.work import Run, Work
from mycel.drivers.interface import Driver, Finished
from mycel.drivers.process.process_driver import ProcessDriver
from mycel.drivers.python.interpreter_pool import PoolLimits
from mycel.drivers.python.python_driver import PythonDriver
from mycel.drivers.registry import DriverContext
from mycel.testing.drivers.conformance import Harness, Subject
from mycel.testing.drivers.memory_driver import MemoryDriver

from .model_subjects import Requests, Services

MODULE = """
import os, sys, time, subprocess, pathlib
def value(x): return x
def boom(text): raise ValueError(text)
def say(text):
    print(text)
    print(text.upper(), file=sys.stderr)
def talk():
    print("before")
    time.sleep(1000)
def talk_on():
    print("before")
    time.sleep(0.3)
    print("after")
    print("more", file=sys.stderr)
    time.sleep(1000)
def leave(code): sys.exit(code)
def vanish(code): os._exit(code)
def a_set(): return {1, 2}
def not_a_number(): return float("nan")
def deny(attempt, note):
    # has the interpreter say that something else has just begun
    import gc, struct
    [one] = [one for one in gc.get_objects() if type(one).__name__ == "Interpreter"]
    one._running = attempt
    pathlib.Path(note).touch()
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        one._memory[8:24] = struct.pack("<Qd", attempt, now)
        time.sleep(0.01)
def set_clock(moment):
    import __main__
    __main__.clock = lambda: float(moment)
    return 1
def clutch(count): return sum(range(count))  # lets nothing else run in its process
def nested(depth):
    value = 1
    for _ in range(depth): value = [value]
    return value
def forge(result):
    # has the interpreter send this as a result, as user code can
    module = next(one for name, one in sys.modules.items() if name.endswith(".interpreter_json"))
    module.Json.encode = lambda self, value: result.encode("latin-1")
    return 1
def big(size): return "x" * size
def where(): return [os.getcwd(), os.environ["MYCEL_WORKDIR"], sorted(os.listdir())]
def fill(size):
    pathlib.Path("file").write_bytes(bytes(size))
    time.sleep(1000)
def babble():
    # has the interpreter forget what runs, and send what no interpreter sends
    import gc
    [one] = [one for one in gc.get_objects() if type(one).__name__ == "Interpreter"]
    one._memory[8:24] = bytes(16)
    one._results.send(255, b"")
    time.sleep(1000)
def litter():
    open("file", "w").close(); os.mkdir("folder"); open("folder/file", "w").close()
def wander(): os.chdir("/")
def settle(): time.sleep(0.2)
def surroundings(*names): return {name: os.environ.get(name) for name in names}
def process_id(): return os.getpid()
def first_place(): return [sys.path[0] == os.environ["MYCEL_WORKDIR"], sys.argv, list(sys.modules)]
def with_grandchild(note):
    child = subprocess.Popen(["sleep", "1000"])
    pathlib.Path(note).write_text(f"{os.getpid()} {child.pid}")
    child.wait()
def forked():
    os.fork()
    return "back"
def hog():
    sum(range(10**12))
not_callable = {}
class Rude(Exception):
    def __str__(self): raise SystemExit(self.args[0])
    __repr__ = __str__
class Twisted(int):
    def __and__(self, other): return "no number"
    def __index__(self): raise KeyError
    def __repr__(self): raise KeyboardInterrupt
class Odd(type):
    __name__ = property(lambda cls: 1 / 0)
def extreme(which):
    huge = "x" * 20_000_000
    if which == "exit with a long text": sys.exit(huge)
    if which == "exit with half a pair": sys.exit("\\ud800\\0" * 50_000)
    if which == "exit with a rude object": sys.exit(Rude(3))
    if which == "exit with a twisted number": sys.exit(Twisted(3))
    if which == "exit with a large number": sys.exit(1 << 200_000)
    if which == "a long message": raise ValueError(huge)
    if which == "half a pair": raise ValueError("\\udfff\\0" * 50_000)
    if which == "a rude error": raise Rude(3)
    if which == "a long name": raise type(huge, (Exception,), {})
    if which == "an odd class": raise Odd("Nameless", (Exception,), {})("odd")
    if which == "a long chain":
        error = ValueError("first")
        for number in range(3000):
            later = ValueError("x" * 1000)
            later.__cause__, error = error, later
        raise error
    if which == "many errors": raise ExceptionGroup("x" * 10_000, [ValueError("y" * 1000)] * 5000)
    if which == "no end of calls":
        def call(): call()
        call()
    if which == "a long output": print(huge); raise ValueError("after it")
def claim_memory(size):
    import __main__
    __main__.peak_memory = lambda: int(size)
    time.sleep(0.1)
    return 1
def write_at(offset):
    # has the interpreter tell of output at that place, in a stream of that number
    import gc, struct
    [one] = [one for one in gc.get_objects() if type(one).__name__ == "Interpreter"]
    for stream in (0, 1, 2, 3, 255):
        one._results.send(6, struct.pack("<QBQ", one._running, stream, int(offset)) + b"text")
    time.sleep(0.1)
    return 1
"""


class Processes(Subject):
    name = "process"

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def create(self, context: DriverContext) -> Driver:
        return ProcessDriver(msgspec.structs.replace(context, **self._changes))

    def quick(self) -> Work:
        return Work("process", command=("true",))

    def slow(self) -> Work:
        return Work("process", command=("sleep", "1000"))

    def failing(self) -> Work:
        return Work("process", command=("false",))

    def crashing(self) -> Work:
        return Work("process", command=("sh", "-c", "kill -SEGV $$"))

    def talking(self, folder: Path) -> Work | None:
        return Work("process", command=("sh", "-c", "echo before; exec sleep 1000"))


class Functions(Subject):
    name = "python"

    def __init__(self, **options: Any) -> None:
        names = PoolLimits.__struct_fields__
        self._limits = PoolLimits(**{name: options.pop(name) for name in names if name in options})
        self._options = options

    def create(self, context: DriverContext) -> Driver:
        options = {"grace_seconds": context.grace_seconds, **self._options}
        root = context.root / "python"
        return PythonDriver(context.helper, context.listener, root, limits=self._limits, **options)

    def quick(self) -> Work:
        return Work("python", function="time:time")

    def slow(self) -> Work:
        return Work("python", function="signal:pause")

    def failing(self) -> Work:
        return Work("python", function="random:choices")

    def crashing(self) -> Work:
        return Work("python", function="os:abort")

    def talking(self, folder: Path) -> Work | None:
        (folder / "talking.py").write_text(MODULE)
        env = (("PYTHONPATH", str(folder)),)
        return Work("python", function="talking:talk", env=env)


class VirtualClock:
    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), callback))

    def step(self) -> bool:
        if not self._due:
            return False
        self._now, _, callback = heapq.heappop(self._due)
        callback()
        return True


class InMemory(Processes):
    """The driver of the simulated worker: it knows the same commands."""

    name = "memory"

    def __init__(self, **_options: Any) -> None:
        self._clock = VirtualClock()

    def create(self, context: DriverContext) -> Driver:
        def duration(run: Run) -> float:
            return 1000.0 if run.work.command[0] == "sleep" else 0.001

        def outcome(run: Run) -> Finished:
            good = run.work.command[0] == "true"
            error = "" if good else "no"
            return Finished(run.attempt, "succeeded" if good else "failed", error=error)

        def output(run: Run) -> bytes:
            return b"before\n"

        return MemoryDriver(
            self._clock, context.listener, random.Random(1), duration, outcome, output=output
        )

    def talking(self, folder: Path) -> Work | None:
        return self.slow()

    def step(self) -> bool:
        return self._clock.step()


SUBJECTS: dict[str, type[Subject]] = {
    "process": Processes,
    "python": Functions,
    "memory": InMemory,
    "model": Requests,
    "service": Services,
}


def write_module(folder: Path) -> None:
    (folder / "modules").mkdir()
    (folder / "modules" / "deeds.py").write_text(MODULE)


def deed(harness: Harness, name: str, *arguments: Any, **options: Any) -> Run:
    """A call of a function in the module above."""
    env = (("PYTHONPATH", str(harness.folder / "modules")), *options.pop("env", ()))
    function = f"deeds:{name}"
    return harness.run(function=function, arguments=list(arguments), env=env, **options)
