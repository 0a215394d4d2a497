"""The agent in front of a real Slurm: what jobs leave comes back, and nothing runs twice or is lost
when any of them is killed. What ran is counted by what the jobs wrote."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.core.agent.attempts import Cause, Outcome, OutcomeState
from mycel.core.agent.batch_jobs import ClusterJob
from mycel.roles.cluster.agent_program import JOBS
from mycel.roles.cluster.folder_origin import cancel, look, look_at_all, send
from tests.end_to_end.swarm import REPOSITORY, eventually

from .slurm_cluster import CONTROLLER, SlurmCluster, skip_without_slurm

KILLS = int(os.environ.get("MYCEL_AGENT_KILLS", "3"))
DAEMON_KILLS = int(os.environ.get("MYCEL_DAEMON_KILLS", "1"))
END_SECONDS = 120.0


class Agent:
    """One agent's folder, and its process, which may be killed and started again."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.folder = folder
        self.jobs = folder / JOBS
        self._environment = {**cluster.environment, "PYTHONPATH": str(REPOSITORY)}
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    def start(self, effect: int = 0, when: str = "before") -> subprocess.Popen[bytes]:
        """It kills itself at that effect, counted from 1."""
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.batch.killed_agent", str(self.folder), str(effect),
                 when],
                env=self._environment, cwd=REPOSITORY, stdout=log, stderr=log,
            )  # fmt: skip
        return self.process

    def run(self) -> None:
        """Until no job is left."""
        process = self.start()
        assert process.wait(END_SECONDS) == 0, self.log

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def send(self, name: str, *command: str, **needs: int) -> None:
        job = ClusterJob(command=command, memory_mb=10, seconds=120)
        fields = {field: getattr(job, field) for field in job.__struct_fields__}
        send(self.jobs, name, ClusterJob(**{**fields, **needs}))

    def outcome(self, name: str) -> Outcome | None:
        return look(self.jobs / name).outcome

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")


@pytest.fixture
def agent(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "agent", slurm)
    yield made
    made.stop()


def test_output_files_and_exit_codes_come_back(agent: Agent) -> None:
    agent.send("good", "sh", "-c", "echo out; echo err >&2; mkdir sub; echo x > sub/file")
    agent.send("bad", "sh", "-c", "exit 7")
    agent.send("many", "sh", "-c", "echo $MYCEL_ELEMENT > made", elements=20)
    agent.send("huge", "true", cores_per_task=1000)
    agent.run()
    good = agent.jobs / "good"
    assert agent.outcome("good") == Outcome(OutcomeState.SUCCEEDED, exit_codes=(0,))
    assert (good / "stdout").read_text() == "out\n"
    assert (good / "stderr").read_text() == "err\n"
    assert (good / "work" / "sub" / "file").read_text() == "x\n"
    assert agent.outcome("bad") == Outcome(OutcomeState.FAILED, exit_codes=(7,))
    assert agent.outcome("many") == Outcome(OutcomeState.SUCCEEDED, exit_codes=(0,) * 20)
    made = [(agent.jobs / "many" / str(n) / "work" / "made").read_text() for n in range(20)]
    assert made == [f"{n}\n" for n in range(20)]
    huge = agent.outcome("huge")
    assert huge is not None
    assert huge.state is OutcomeState.RETURNED
    assert "rocessors" in huge.text, "Slurm's own words"


def test_what_runs_and_what_waits_is_cancelled(agent: Agent, tmp_path: Path) -> None:
    agent.send("begins", "sh", "-c", f"echo > {tmp_path}/began; sleep 600")
    for number in range(4):
        agent.send(f"fill{number}", "sleep", "600", cores_per_task=4)
    agent.send("waits", "sh", "-c", f"echo > {tmp_path}/wrong", cores_per_task=4)
    process = agent.start()
    eventually((tmp_path / "began").exists, "it begins")
    names = ["begins", "waits", *(f"fill{number}" for number in range(4))]
    eventually(lambda: "pending" in look(agent.jobs / "waits").state, "it waits")
    assert cancel(agent.jobs, "waits")
    # Not with the others: it would begin as soon as they make room.
    eventually(lambda: agent.outcome("waits") is not None, "it is cancelled")
    for name in names:
        assert cancel(agent.jobs, name)
    assert process.wait(END_SECONDS) == 0, agent.log
    found = {name: agent.outcome(name) for name in names}
    assert {one.state for one in found.values() if one} == {OutcomeState.CANCELLED}
    assert not (tmp_path / "wrong").exists()


def test_results_outlive_slurms_memory_and_hopeless_jobs_return(
    tmp_path: Path,
) -> None:
    skip_without_slurm()
    settings = "MinJobAge=2\nEnforcePartLimits=NO"
    with SlurmCluster(tmp_path / "alpha", nodes=1, settings=settings) as cluster:
        agent = Agent(tmp_path / "agent", cluster)
        agent.send("early", "sh", "-c", "echo done; exit 3")
        process = agent.start()
        eventually((agent.folder / "shared" / "early").exists, "it begins")
        process.kill()
        process.wait()
        eventually((agent.folder / "shared" / "early" / "exit_code").exists, "it ends")
        eventually(
            lambda: not cluster.run("squeue", "--noheader", "--states=all"), "Slurm forgets it", 90
        )
        agent.send("long", "true", seconds=30 * 86_400)  # Slurm takes it, and never starts it
        agent.run()
        assert agent.outcome("early") == Outcome(OutcomeState.FAILED, exit_codes=(3,))
        long = agent.outcome("long")
        assert long is not None
        assert (long.state, long.cause) == (OutcomeState.RETURNED, Cause.HOPELESS)
        assert long.text == "PartitionTimeLimit"


def test_a_broken_job_file_is_returned_with_the_reason(agent: Agent) -> None:
    for name, text in (("nojson", "{"), ("strange", '{"command": ["a"], "wat": 1}'),
                       ("zero", '{"command": ["a"], "nodes": 0}')):  # fmt: skip
        (agent.jobs / name).mkdir(parents=True)
        (agent.jobs / name / "job.json").write_text(text)
    agent.run()
    found = {one.name: one.outcome for one in look_at_all(agent.jobs)}
    assert {one.state for one in found.values() if one} == {OutcomeState.RETURNED}
    assert "nodes" in (found["zero"].text if found["zero"] else "")


def test_kills_of_the_agent_and_of_slurm_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """The agent before and after effects of all kinds; the controller and a node in between."""
    skip_without_slurm()
    seed = int.from_bytes(os.urandom(4))
    chance = random.Random(seed)
    with SlurmCluster(tmp_path / "alpha", nodes=2) as cluster:
        agent, log = Agent(tmp_path / "agent", cluster), Log(tmp_path / "log")
        try:
            for number in range(KILLS):
                for length in ("0", "0.5", "3"):
                    log.send(agent, f"job-{number}-{length.replace('.', '-')}", length)
                process = agent.start(chance.randint(1, 25), chance.choice(("before", "after")))
                if number < DAEMON_KILLS:
                    _kill_and_start(cluster, (CONTROLLER, "n1")[number % 2], process, chance)
                assert process.wait(END_SECONDS) in (0, -signal.SIGKILL), agent.log
            agent.run()
        finally:
            agent.stop()
        counted = log.judge(agent, f"seed {seed}\n{agent.log[-3000:]}")
        print(f"{KILLS} agents killed:", counted)
        assert not cluster.run("squeue", "--noheader").strip()


class Log:
    """What the jobs themselves wrote, against what the agent says of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: list[str] = []
        folder.mkdir()

    def send(self, agent: Agent, name: str, seconds: str) -> None:
        path = self._folder / name
        body = f"echo began >> {path}; sleep {seconds}; echo ended >> {path}"
        agent.send(name, "sh", "-c", body)
        self._sent.append(name)

    def judge(self, agent: Agent, story: str) -> Counter[str]:
        """A controller that is killed kills jobs that it had not saved, and new ones that get
        their numbers; others run on without its knowing. Such a job may be called lost or given
        back, but nothing else that is not so."""
        counted: Counter[str] = Counter()
        for name in self._sent:
            outcome, path = agent.outcome(name), self._folder / name
            wrote = path.read_text().split() if path.exists() else []
            told = f"{name} wrote {wrote}, and is said to have ended as {outcome}; {story}"
            assert outcome is not None, told
            counted[outcome.state.value] += 1
            assert wrote in ([], ["began"], ["began", "ended"]), told
            if outcome.state is not OutcomeState.LOST:
                assert (outcome.state is OutcomeState.SUCCEEDED) == (len(wrote) == 2), told
                assert (outcome.state is OutcomeState.RETURNED) == (len(wrote) == 0), told
            if not DAEMON_KILLS:
                assert outcome.state is OutcomeState.SUCCEEDED, told
        return counted


def _kill_and_start(
    cluster: SlurmCluster, what: str, agent: subprocess.Popen[bytes], chance: random.Random
) -> None:
    """While the agent is at it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(chance.uniform(0, 3))
    cluster.kill(what)
    cluster.start(what)


def test_the_commands_of_the_guide(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = str(tmp_path / "mycel")

    def mycel(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mycel", "cluster", *words],
            env=slurm.environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    agent = subprocess.Popen(
        [sys.executable, "-m", "mycel", "cluster", "agent", folder, "--look", "0.3"],
        env=slurm.environment, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        needs = ("--cores", "2", "--memory", "20MB", "--time", "60", "--env", "WORD=it's")
        sent = mycel("send", folder, *needs, "--wait", "--", "sh", "-c", 'echo "$WORD"; exit 4')
        assert sent.returncode == 1, sent
        name, ending = sent.stdout.splitlines()
        assert ending == "failed"
        assert (tmp_path / "mycel" / "jobs" / name / "stdout").read_text() == "it's\n"
        mycel("send", folder, "--memory", "10MB", "--name", "x", "--", "sleep", "600")
        again = mycel("send", folder, "--memory", "10MB", "--name", "x", "--", "true")
        assert again.returncode == 2, again
        assert mycel("cancel", folder, "x").returncode == 0
        assert mycel("cancel", folder, "y").returncode == 1
        eventually(lambda: look(tmp_path / "mycel" / "jobs" / "x").outcome, "it is cancelled", 60)
        assert "cancelled" in mycel("jobs", folder).stdout
        second = mycel("agent", folder)
        assert second.returncode == 1, second
        assert "another agent" in second.stderr
        agent.terminate()
        assert agent.wait(30) == 0
    finally:
        agent.kill()
        agent.communicate()
