"""A program: serves one GGUF file by llama.cpp, on a Unix socket in its working folder.

    python llama_server.py '{"gguf": …, "socket": …, "slots": 4, "context": 4096, …}'

llama.cpp brings the server: OpenAI's routes, the model's own chat template, slots that share
each step. The socket lies in a folder that is its owner's alone, so no key is needed. Nothing
of Mycel is imported: it has to run in whatever environment has `xllamacpp`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any, Final

READY: Final = 3
"""The descriptor on which the worker hears that the model is loaded."""
MISSING: Final = (
    "xllamacpp is not installed for {python}: pip install 'mycel[llama]', or name the folder "
    "that has it as `folder` of the model"
)


def parameters(xllamacpp: Any, given: dict[str, Any]) -> Any:
    wanted = xllamacpp.CommonParams()
    wanted.model.path = given["gguf"]
    wanted.model_alias = [given["name"]]
    wanted.hostnames = [given["socket"]]
    wanted.n_parallel = given["slots"]
    wanted.n_ctx = given["slots"] * given["context"]
    wanted.n_gpu_layers = given["gpu_layers"]
    if given["threads"]:
        wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = given["threads"]
    if given["kind"] == "embedding":
        wanted.embedding = True
    wanted.cache_ram_mib = 0  # what it takes was said beforehand
    wanted.endpoint_slots = False
    wanted.ui = False
    wanted.offline = True
    wanted.verbosity = 1
    return wanted


def main() -> None:
    given = json.loads(sys.argv[1])
    if given["folder"]:
        sys.path.insert(0, given["folder"])
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError:
        sys.exit(MISSING.format(python=sys.executable))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = xllamacpp.Server(parameters(xllamacpp, given))
    os.write(READY, b"ready")
    signal.pause()
    del server


if __name__ == "__main__":
    main()
