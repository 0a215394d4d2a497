"""`mycel.Executor` does what `concurrent.futures` promises.

The cases are those of CPython's own tests of its executors, written anew. What does not apply:

* `max_workers`, start methods, initializers, tasks per child: the swarm's owners settle these.
* `running()`: it says False until the end. And `cancel()` stops a call that runs, where the
  standard library says that it cannot be cancelled.
* Exceptions keep their type, arguments and cause, not their frames: the cause has the traceback.
"""

from __future__ import annotations

import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    as_completed,
    wait,
)
from pathlib import Path
from typing import Any

import pytest

import mycel

from .swarm import Swarm, eventually


@pytest.fixture
def executor(swarm: Swarm) -> Iterator[mycel.Executor]:
    with mycel.Executor(swarm.client) as executor:
        yield executor


def held(path: str, value: Any = None) -> Any:
    while not Path(path).exists():
        time.sleep(0.005)
    return value


def raising() -> None:
    raise ValueError("raised on purpose", 7)


class TestSubmit:
    def test_positional_and_named_arguments(self, executor: mycel.Executor) -> None:
        assert executor.submit(pow, 2, 8).result() == 256
        assert executor.submit(lambda *a, **n: (a, n), 1, self=2, fn=3).result() == (
            (1,),
            {"self": 2, "fn": 3},
        )
        with pytest.raises(TypeError):
            executor.submit()  # type: ignore[call-arg]

    def test_the_exception_of_a_call(self, executor: mycel.Executor) -> None:
        future = executor.submit(raising)
        with pytest.raises(ValueError, match="on purpose") as caught:
            future.result()
        assert caught.value.args == ("raised on purpose", 7)
        assert "in raising" in str(caught.value.__cause__)
        assert isinstance(future.exception(), ValueError)

    def test_an_exception_that_cannot_be_pickled(self, executor: mycel.Executor) -> None:
        def fail() -> None:
            class Picky(Exception):
                def __init__(self, one: int, two: int) -> None:
                    super().__init__("only one")

            raise Picky(1, 2)

        with pytest.raises(mycel.client.TaskFailed, match="only one"):
            executor.submit(fail).result()

    def test_a_result_that_cannot_be_pickled(self, executor: mycel.Executor) -> None:
        with pytest.raises(Exception, match="cannot pickle"):
            executor.submit(lambda: (n for n in range(3))).result()

    def test_after_shutdown(self, swarm: Swarm) -> None:
        executor = mycel.Executor(swarm.client)
        executor.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(pow, 2, 5)


class TestMap:
    def test_values_in_order(self, executor: mycel.Executor) -> None:
        assert list(executor.map(pow, range(10), range(10))) == [n**n for n in range(10)]
        assert list(executor.map(pow, range(3), range(10), chunksize=3)) == [1, 1, 4]
        assert list(executor.map(pow, [], [])) == []

    def test_an_exception_in_its_place(self, executor: mycel.Executor) -> None:
        values = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
        assert [next(values), next(values)] == [(0, 1), (0, 1)]
        with pytest.raises(ZeroDivisionError):
            next(values)

    def test_a_timeout(self, executor: mycel.Executor, tmp_path: Path) -> None:
        go = tmp_path / "go"
        (tmp_path / "there").touch()
        values = executor.map(held, [str(tmp_path / "there"), str(go)], timeout=2)
        with pytest.raises(TimeoutError):
            list(values)


class TestFutures:
    def test_how_a_future_goes(self, executor: mycel.Executor, tmp_path: Path) -> None:
        go = tmp_path / "go"
        future = executor.submit(held, str(go), 3)
        assert not future.done()
        assert not future.cancelled()
        with pytest.raises(TimeoutError):
            future.result(timeout=0)
        with pytest.raises(TimeoutError):
            future.exception(timeout=0)
        go.touch()
        assert future.result(timeout=60) == 3
        assert future.exception() is None
        assert future.done()
        assert not future.cancel()

    def test_callbacks(self, executor: mycel.Executor, tmp_path: Path) -> None:
        told: list[object] = []

        def fails(_: object) -> None:
            told.append("fails")
            raise RuntimeError("in a callback, which is logged")

        future = executor.submit(held, str(tmp_path / "go"), 5)
        future.add_done_callback(fails)
        future.add_done_callback(lambda one: told.append(one.result()))
        (tmp_path / "go").touch()
        eventually(lambda: len(told) == 2, "both were called")
        future.add_done_callback(lambda one: told.append("at once"))
        assert told == ["fails", 5, "at once"]

    def test_cancelled(self, executor: mycel.Executor) -> None:
        told: list[object] = []
        future = executor.submit(time.sleep, 1000)
        future.add_done_callback(told.append)
        assert future.cancel()
        assert (future.cancelled(), future.done()) == (True, True)
        with pytest.raises(CancelledError):
            future.result()
        with pytest.raises(CancelledError):
            future.exception()
        assert told == [future]

    def test_a_value_that_was_taken_is_let_go(self, executor: mycel.Executor) -> None:
        future = executor.submit(lambda: {1, 2})
        found = weakref.ref(future.result())
        assert found() is future.result()
        del future
        eventually(lambda: found() is None, "nobody holds it")


class TestWait:
    def test_for_the_first(self, executor: mycel.Executor, tmp_path: Path) -> None:
        go = tmp_path / "go"
        futures = [executor.submit(held, str(go)), executor.submit(pow, 2, 3)]
        done, rest = wait(futures, return_when=FIRST_COMPLETED)
        assert (done, rest) == ({futures[1]}, {futures[0]})
        again, _ = wait([*futures, futures[1]], return_when=FIRST_COMPLETED)
        assert again == done
        go.touch()
        assert wait(futures, return_when=ALL_COMPLETED)[1] == set()

    def test_for_the_first_exception(self, executor: mycel.Executor, tmp_path: Path) -> None:
        go = tmp_path / "go"
        futures = [executor.submit(held, str(go)), executor.submit(raising)]
        done, rest = wait(futures, return_when=FIRST_EXCEPTION)
        assert (done, rest) == ({futures[1]}, {futures[0]})
        go.touch()

    def test_a_timeout(self, executor: mycel.Executor, tmp_path: Path) -> None:
        future = executor.submit(held, str(tmp_path / "go"))
        assert wait([future], timeout=0.01) == (set(), {future})
        with pytest.raises(TimeoutError):
            list(as_completed([future], timeout=0))
        (tmp_path / "go").touch()

    def test_as_completed(self, executor: mycel.Executor) -> None:
        futures = [executor.submit(pow, 2, n) for n in range(5)]
        found = list(as_completed([*futures, *futures]))
        assert len(found) == 5
        assert set(found) == set(futures)


class TestShutdown:
    def test_it_waits(self, swarm: Swarm) -> None:
        executor = mycel.Executor(swarm.client)
        futures = [executor.submit(time.sleep, 0.05) for _ in range(8)]
        executor.shutdown()
        assert all(future.done() for future in futures)
        executor.shutdown()

    def test_it_does_not_wait(self, swarm: Swarm, tmp_path: Path) -> None:
        executor = mycel.Executor(swarm.client)
        future = executor.submit(held, str(tmp_path / "go"), 1)
        executor.shutdown(wait=False)
        assert not future.done()
        (tmp_path / "go").touch()
        assert future.result(60) == 1

    def test_it_cancels(self, swarm: Swarm) -> None:
        executor = mycel.Executor(swarm.client)
        futures = [executor.submit(time.sleep, 1000) for _ in range(12)]
        executor.shutdown(cancel_futures=True)
        assert all(future.cancelled() for future in futures)

    def test_the_end_of_the_program(self, swarm: Swarm, tmp_path: Path) -> None:
        """What was submitted runs, and the program ends."""
        note = tmp_path / "note"
        program = (
            "import mycel, sys\n"
            "client = mycel.Client(sys.argv[1], sys.argv[2])\n"
            "def write(path):\n"
            "    open(path, 'w').write('written')\n"
            "mycel.Executor(client).submit(write, sys.argv[3])\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, swarm.client.api, swarm.token, str(note)],
            check=True,
            timeout=120,
        )
        eventually(lambda: note.exists() and note.read_text() == "written", "the call ran")
