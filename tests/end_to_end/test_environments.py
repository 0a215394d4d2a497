"""Packages that tasks bring along, through a real swarm: job files, REST, Python, commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import mycel
from mycel.drivers.environments.environment_cache import find_uv
from tests.adapters.drivers.wheels import make_wheel, requirements
from tests.adapters.sandbox.subjects import needs_bubblewrap
from tests.attacks.environment_servers import served, wheel, wheel_name

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm

pytestmark = pytest.mark.skipif(find_uv() is None, reason="uv is not installed")

CODE = "def count(text): return [VERSION, len(text.split())]\n"


@pytest.fixture
def swarm(make_swarm: SwarmMaker, tmp_path: Path) -> Swarm:
    """Its owner lets uv look into a folder of wheels."""
    swarm = make_swarm(QUICK)
    swarm.environment["UV_FIND_LINKS"] = str(tmp_path / "wheels")
    swarm.up(workers=1)
    return swarm


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A requirements file of one package."""
    make_wheel(tmp_path / "wheels", "wordcount", "1.5", CODE)
    path = tmp_path / "requirements.txt"
    path.write_text(requirements("wordcount"))
    return path


def test_every_way_to_give_an_environment(swarm: Swarm, file: Path) -> None:
    job = file.with_name("count.toml")
    job.write_text(
        'python = "wordcount:count"\narguments = ["to be or not"]\n'
        'environment = "requirements.txt"\n'
    )
    done = swarm.mycel("submit", "--follow", str(job))
    assert done.code == 0, done
    assert '["1.5",4]' in done.out
    done = swarm.mycel("run", "--environment", str(file), "--", "wordcount")
    assert (done.code, done.out) == (0, "1.5\n"), done
    task = swarm.client.submit_task(
        python="wordcount:count", arguments=["a b"], environment=file, wait=30
    )
    assert task.value == ["1.5", 2]
    assert (task.environment or "").startswith("blake3:")
    lines = file.read_text().splitlines()
    task = swarm.client.submit_task(
        python="wordcount:count", arguments=["a"], environment=lines, wait=30
    )
    assert task.value == ["1.5", 1]


def test_a_build_that_fails_is_told_with_what_uv_said(swarm: Swarm, file: Path) -> None:
    text = requirements("wordcount==7")
    task = swarm.client.submit_task(python="wordcount:count", environment=text, wait=30)
    assert task.state == "failed"
    assert len(task.attempts) == 1
    assert (task.error or "").startswith("the environment cannot be built: ")
    assert "Using Python" not in (task.error or "").splitlines()[0], "that is no reason"
    assert "wordcount==7" in (task.error or "")


def test_a_file_that_is_missing_is_told_with_its_line(swarm: Swarm, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('command = ["true"]\nenvironment = "nowhere.txt"\n')
    done = swarm.mycel("submit", str(job))
    assert done.code != 0
    assert "job.toml, line 2" in done.err
    assert "nowhere.txt" in done.err


@needs_bubblewrap
def test_code_in_a_wheel_does_not_run_outside_of_the_sandbox(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(QUICK)
    swarm.environment["MYCEL_WORKER__SANDBOX"] = "required"
    trace = tmp_path / "trace"
    trace.mkdir()
    trace.chmod(0o777)
    code = (
        f"import os; found = [os.getuid(), open({str(swarm.home / 'owner.key')!r}, 'rb').read()]; "
        f"open({str(trace / 'found')!r}, 'w').write(repr(found))"
    )
    with served() as shop:
        name = wheel_name("evil", "1.0")
        shop.content[f"/{name}"] = wheel("evil", "1.0", {"evil.pth": f"{code}\n".encode()})
        swarm.environment["MYCEL_WORKER__ENVIRONMENTS__ALLOW_ADDRESSES"] = (
            f'["127.0.0.1:{shop.port}"]'
        )
        swarm.up(workers=1)
        task = swarm.client.submit_task(
            command=["python", "-c", "import os; print(os.getuid())"],
            environment=[f"evil @ {shop.url(f'/{name}')}"],
            sandbox="required",
            wait=60,
        )
        assert (task.state, task.error) == ("succeeded", None), task
        refused = swarm.client.submit_task(
            command=["true"], environment=["evil @ http://169.254.169.254/evil-1.0.zip"], wait=60
        )
        assert "a link-local address" in (refused.error or ""), refused
    assert list(trace.iterdir()) == []


def test_a_function_by_value_in_an_environment(
    swarm: Swarm, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no cloudpickle of its own: the worker's is taken."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting.py").write_text(
        "def count(text):\n    import wordcount\n    return wordcount.count(text), {1, 2}\n"
    )
    import counting  # type: ignore[import-not-found]

    call = mycel.task(counting.count, environment=file)
    assert swarm.client.run(call, "to be or not") == (["1.5", 4], {1, 2})
    with pytest.raises(ModuleNotFoundError):
        swarm.client.run(counting.count, "to be")
