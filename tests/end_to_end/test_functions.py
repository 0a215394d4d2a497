"""Functions that go by value: whatever Python can call, with whatever it can pickle."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mycel
from mycel import as_completed, gather, wait
from mycel.client import Client, Invalid, TaskFailed
from mycel.client.functions.values import Pickled

from .conftest import SwarmMaker
from .swarm import Swarm, eventually


@dataclasses.dataclass
class Point:
    x: float
    label: bytes


class Unripe(Exception):
    pass


def in_main(source: str, name: str) -> Any:
    """What a program's own file defines: its module can be imported nowhere."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(source, space)
    return space[name]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes modules into a folder of the submitter's own."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        return file

    return write


def test_lambdas_and_closures(swarm: Swarm) -> None:
    base = {"offset": 40}
    assert swarm.client.run(lambda x: x + base["offset"], 2) == 42
    assert swarm.client.run(lambda a, *, b: (a, b), 1, b={2, 3}) == (1, {2, 3})
    assert swarm.client.run(lambda: os.getpid()) != os.getpid()


def test_a_function_of_the_program_itself(swarm: Swarm) -> None:
    source = "import math\nclass Half:\n  of = 2\ndef area(r): return math.pi * r / Half.of"
    assert swarm.client.run(in_main(source, "area"), 2.0) == pytest.approx(3.14159, abs=1e-4)


VALUES: list[Any] = [
    b"\0\xff",
    {1: "one", (2, 3): None},
    (1, [2, {3}]),
    1 << 80,
    float("inf"),
    "\ud800",
    "Zürich",
    Point(1.5, b"pear"),
    1 + 2j,
    range(3),
    True,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_arrive_as_they_were_sent(swarm: Swarm, value: Any) -> None:
    kind, back = swarm.client.run(lambda given: (type(given).__name__, given), value)
    assert (kind, back) == (type(value).__name__, value)
    assert type(back) is type(value)
    alone = swarm.client.run(lambda given: given, value)
    assert (type(alone), alone) == (type(value), value)


def test_arrays(swarm: Swarm) -> None:
    small = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(swarm.client.run(lambda a: a.T * 2, small), small.T * 2)
    large = np.arange(3_000_000, dtype=np.int64)  # by blob, there and back
    future = swarm.client.submit(lambda a: a[::-1], large)
    assert np.array_equal(future.result(), large[::-1])
    [line] = list(swarm.client.results(future.task_id.partition(".")[0]))
    assert "$file" in str(dict(line.value))
    assert swarm.client.run(lambda a: float(a.sum()), large) == large.sum()


def test_what_calls_share_is_sent_once(swarm: Swarm) -> None:
    with Client(swarm.client.api, swarm.token) as client:
        table = np.arange(1_000_000) + os.getpid()
        futures = [client.submit(lambda t, n: t[n], table, n) for n in range(20)]
        assert [int(one.result()) for one in futures] == [os.getpid() + n for n in range(20)]
        named = {
            str(one.arguments["$buffers"]) for one in client.tasks(job=futures[0].task_id[:26])
        }
        assert len(named) == 1
        changed = client.run(lambda t: t.__setitem__(0, 5) or int(t[0]), table)  # its own copy
        assert (changed, table[0]) == (5, os.getpid())
        strided = table[::2]
        assert np.array_equal(client.run(lambda t: t, strided), strided)
        fixed = table.copy()
        fixed.flags.writeable = False
        assert client.run(lambda t: t.flags.writeable, fixed) is False


def test_a_large_closure(swarm: Swarm) -> None:
    table = np.arange(100_000)
    look = lambda place: int(table[place])  # noqa: E731
    assert gather(swarm.client.submit(look, place) for place in (0, 5, 99_999)) == [0, 5, 99_999]


def test_own_modules_go_along(swarm: Swarm, modules: Callable[[str, str], Path]) -> None:
    modules("orchard/__init__.py", "")
    modules("orchard/trees.py", "from .fruit import NAME\ndef grow(n): return [NAME] * n\n")
    modules("orchard/fruit.py", "NAME = 'pear'\n")
    modules("late_import.py", "import orchard.fruit\nVALUE = orchard.fruit.NAME + 's'\n")
    from orchard import trees  # type: ignore[import-not-found]

    assert swarm.client.run(trees.grow, 2) == ["pear", "pear"]
    assert swarm.client.run(lambda: trees.grow(1)) == ["pear"]

    def imports_when_it_runs() -> str:
        import late_import  # type: ignore[import-not-found]

        return str(late_import.VALUE)

    assert swarm.client.run(imports_when_it_runs) == "pears"


def test_a_module_that_was_changed(swarm: Swarm, modules: Callable[[str, str], Path]) -> None:
    import importlib

    file = modules("changing.py", "def told(): return 'before'\n")
    changing = importlib.import_module("changing")
    assert swarm.client.run(changing.told) == "before"
    file.write_text("def told(): return 'and after'\n")
    importlib.reload(changing)
    assert swarm.client.run(changing.told) == "and after"


def test_an_exception_is_raised_here_with_its_traceback(swarm: Swarm) -> None:
    def fail(what: str) -> None:
        raise Unripe(what)

    future = swarm.client.submit(fail, "the pear")
    with pytest.raises(Unripe, match="the pear") as caught:
        future.result()
    assert "in fail" in str(caught.value.__cause__)
    assert isinstance(future.exception(), Unripe)
    with pytest.raises(TaskFailed, match=r"sys\.exit"):
        swarm.client.run(lambda: __import__("sys").exit(3))


def test_results_of_others_are_unpickled_only_on_request(swarm: Swarm) -> None:
    future = swarm.client.submit(lambda: {1, 2})
    future.result()
    with Client(swarm.client.api, swarm.token) as other:
        found = other.result(future.task_id)
        assert isinstance(found, Pickled)
        assert found.load() == {1, 2}


def test_a_function_runs_only_where_its_python_is(swarm: Swarm) -> None:
    future = swarm.client.submit(lambda: 1)
    future.result()
    [software] = [swarm.client.task(future.task_id).requirements["software"]]
    version = f"3.{mycel.client.functions.pickling.PYTHON_VERSION.partition('.')[2]}"
    assert software["python"].startswith(f">={version},<3.")


def test_futures(swarm: Swarm) -> None:
    told: list[int] = []
    futures = [swarm.client.submit(lambda n: n * n, n) for n in range(200)]
    futures[0].add_done_callback(lambda one: told.append(one.result()))
    done, _ = wait(futures, 10)
    assert len(done) >= 10
    assert sorted(one.result() for one in as_completed(futures)) == [n * n for n in range(200)]
    assert told == [0]
    jobs = {one.task_id.partition(".")[0] for one in futures}
    assert len(jobs) < 20  # one, unless the machine pauses for longer than a job stays open


def test_a_future_is_cancelled_while_it_runs(swarm: Swarm, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def run_on(path: str) -> None:
        Path(path).write_text("")
        time.sleep(1000)

    future = swarm.client.submit(run_on, str(begun))
    eventually(begun.exists, "the call has begun")
    assert future.cancel()
    assert future.cancelled()
    assert future.cancel()
    eventually(lambda: swarm.client.task(future.task_id).state == "cancelled", "it is cancelled")


def test_options(swarm: Swarm) -> None:
    @mycel.task(cores=2, memory="64MB", timeout=30.0, name="halves")  # type: ignore[untyped-decorator]
    def half(value: float) -> float:
        return value / 2

    assert half(3.0) == 1.5
    future = swarm.client.submit(half, 5.0)
    assert future.result() == 2.5
    found = swarm.client.task(future.task_id)
    assert found.requirements["cpu_cores"] == 2
    assert found.requirements["min_memory"] == 64_000_000
    assert list(swarm.client.map(half.with_options(cores=1), [1.0, 2.0])) == [0.5, 1.0]


def test_map(swarm: Swarm) -> None:
    client = swarm.client
    assert list(client.map(lambda a, b: a - b, range(1000), range(1, 1001))) == [-1] * 1000
    assert list(client.map(lambda one: one, [])) == []
    assert list(client.map("operator:neg", [])) == []
    arrays = [np.full(100, n) for n in range(50)]
    assert [int(one.sum()) for one in client.map(lambda a: a + 1, arrays)] == [
        100 * (n + 1) for n in range(50)
    ]


def test_a_map_submits_before_anybody_reads(swarm: Swarm, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    values = swarm.client.map(lambda path: Path(path).write_text("x"), [str(file)])
    eventually(file.exists, "the call has run")
    assert list(values) == [1]


def test_a_map_that_is_closed_is_cancelled(swarm: Swarm) -> None:
    def endless() -> Iterator[float]:
        yield 0.0
        while True:
            yield 1000.0

    values = swarm.client.map(time.sleep, endless())
    assert next(values) is None
    values.close()
    job = eventually(lambda: _ended(swarm, values.job_id), "the job has ended")
    assert job.state == "cancelled"


def _ended(swarm: Swarm, job_id: str) -> Any:
    job = swarm.client.job(job_id)
    return job if job.is_over else None


def test_a_map_raises_in_the_place_of_the_failure(swarm: Swarm) -> None:
    values = swarm.client.map(lambda n: 1 / n, [1, 2, 0, 4])
    assert [next(values), next(values)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(values)


def test_a_client_that_is_closed_has_sent_all(swarm: Swarm) -> None:
    with Client(swarm.client.api, swarm.token) as client:
        futures = [client.submit(lambda n: n, n) for n in range(100)]
    assert [one.result(60) for one in futures] == list(range(100))
    jobs = {one.task_id[:26] for one in futures}
    eventually(lambda: all(_ended(swarm, job) for job in jobs), "its jobs are closed")
    with pytest.raises(RuntimeError, match="closed"):
        client.submit(lambda: 1)


def test_the_scheduler_is_killed_meanwhile(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    go = tmp_path / "go"

    def held(path: str, n: int) -> int:
        while not Path(path).exists():
            time.sleep(0.01)
        return n

    future = swarm.client.submit(held, str(go), 7)
    values = swarm.client.map(lambda n: held(str(go), n), range(20))
    eventually(lambda: future.task_id and values.submitted == 20, "all has been sent")
    swarm.kill("scheduler")
    late = swarm.client.submit(lambda: "late")
    swarm.up()
    go.write_text("")
    assert future.result(120) == 7
    assert list(values) == list(range(20))
    assert late.result(120) == "late"


def test_a_cancelled_job_cancels_its_futures(swarm: Swarm) -> None:
    future = swarm.client.submit(time.sleep, 1000)
    eventually(lambda: future.task_id, "it was sent")
    swarm.client.cancel(future.task_id.partition(".")[0])
    with pytest.raises(CancelledError):
        future.result(60)
    assert swarm.client.run(len, "on") == 2


def test_calls_with_one_key_run_once(swarm: Swarm, tmp_path: Path) -> None:
    note = tmp_path / "note"

    @mycel.task(key=f"once {tmp_path}")  # type: ignore[untyped-decorator]
    def write(path: str) -> str:
        with Path(path).open("a") as file:
            file.write("ran\n")
        return "done"

    assert swarm.client.submit(write, str(note)).result() == "done"
    with Client(swarm.client.api, swarm.token) as other:
        again = [other.submit(write, str(note)) for _ in range(3)]
        changed = other.submit(write.with_options(timeout=5.0), str(note))  # the first one counts
        assert [one.result() for one in [*again, changed]] == ["done"] * 4
    assert note.read_text() == "ran\n"


def test_a_future_as_an_argument(swarm: Swarm) -> None:
    submit = swarm.client.submit
    plain = submit(lambda: 4)
    odd = submit(lambda: {1, float("inf")})
    large = submit(lambda: np.arange(1_000_000))  # a blob, which does not come here
    both = submit(lambda a, b, *, c: (a, sorted(b), int(c[-1]), c.size), plain, odd, c=large)
    assert "$pickle_file" in large.travelling()
    assert both.result() == (4, [1, float("inf")], 999_999, 1_000_000)
    assert submit(lambda a, b: a + b[1], plain, [0, 3]).result() == 7
    assert submit(len, odd).result() == 2
    assert submit("operator:add", plain, 1).result() == 5
    with pytest.raises(TypeError, match="submit the function itself"):
        submit("builtins:len", odd).result()
    with pytest.raises(TypeError, match="an argument of its own"):
        submit(len, [plain])
    assert list(swarm.client.map(lambda a: a + 1, [plain, 5])) == [5, 6]


def test_what_waits_for_a_failure_fails(swarm: Swarm, tmp_path: Path) -> None:
    failed = swarm.client.submit(lambda: 1 / 0)
    assert isinstance(swarm.client.submit(abs, failed).exception(60), ZeroDivisionError)
    endless = swarm.client.submit(time.sleep, 1000)
    waiting = [swarm.client.submit(abs, endless) for _ in range(2)]
    assert waiting[0].cancel()
    assert not endless.done()
    assert endless.cancel()
    assert isinstance(waiting[1].exception(60), CancelledError)


def test_code_that_nobody_has_brought_is_refused(swarm: Swarm) -> None:
    call = {"name": "a:b", "python_version": "3.11", "code": "blake3:" + "0" * 64}
    with pytest.raises(Invalid, match="upload them first"):
        swarm.client.submit_task(call=call)


def test_the_command_line_shows_what_json_lacks(swarm: Swarm) -> None:
    job = swarm.client.submit_job({"python": "builtins:list"}, arguments=[[[1, float("nan")]]])
    swarm.client.wait_job(job.id)
    said = swarm.mycel("results", job.id)
    assert '[1,{"$float":"nan"}]' in said.out, said
    assert swarm.mycel("results", job.id, "--jsonl").json["value"] == [1, {"$float": "nan"}]


def test_a_long_result_that_cannot_be_pickled_leaves_nothing(swarm: Swarm) -> None:
    def half_pickled() -> list[Any]:
        return [bytes(3_000_000), (n for n in range(3))]

    with pytest.raises(TaskFailed, match="cannot be pickled"):
        swarm.client.run(half_pickled)
    left = swarm.home.glob("worker-*/tasks/python/interpreter-*/.task-*")
    assert not list(left)
