"""The private parts of uvicorn that the API overrides or relies on are those it was written for.

When one of these tests fails after an upgrade, read what changed in uvicorn, adapt
`api/http/http_protocol.py`, `api/http/server.py` and `api/express.py` to it, and then write the
new version into `pyproject.toml` and the new digest here.
"""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from uvicorn import Server
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mycel.api.express import ExpressProtocol
from mycel.api.http.http_protocol import GuardedProtocol
from mycel.api.http.server import _Uvicorn

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
RELIED_ON: dict[Callable[..., Any], str] = {
    HttpToolsProtocol.__init__: "4f08999410347141",
    HttpToolsProtocol.connection_made: "6efb565ff3d36b91",
    HttpToolsProtocol.connection_lost: "c91a4c9bf2e29c55",
    HttpToolsProtocol.data_received: "010a7ae59a5d3b1a",
    HttpToolsProtocol.on_message_begin: "96d377fdc7c2baef",
    HttpToolsProtocol.on_url: "37be44e962b04ca8",
    HttpToolsProtocol.on_header: "65d62c044f61fdbd",
    HttpToolsProtocol.on_headers_complete: "1ea8589acfad92d8",
    HttpToolsProtocol._start_asgi_task: "9c08c2571ae9b038",
    HttpToolsProtocol.on_body: "dba9c32aeba35b6a",
    HttpToolsProtocol.on_message_complete: "1fbad42dc31fc01f",
    HttpToolsProtocol.on_response_complete: "64e254f28e389e76",
    HttpToolsProtocol.shutdown: "d7351fa33f00d430",
    RequestResponseCycle.__init__: "4d2f220910c33c12",
    RequestResponseCycle.run_asgi: "0f33f2449a444bc2",
    RequestResponseCycle.send: "abdd8601b326a8da",
    RequestResponseCycle.receive: "8124ae006be71184",
    Server.__init__: "c150b55284f7511e",
    Server.main_loop: "afccb353a119333f",
    Server.on_tick: "60ea49b06ccf68c1",
    Server.shutdown: "9b33c50562992b1e",
    FlowControl.__init__: "0152d94a040758b5",
    FlowControl.pause_reading: "7c27388bb984e9ed",
    FlowControl.resume_reading: "a0429d30857e8488",
}


def test_uvicorn_is_pinned_to_the_version_that_is_installed() -> None:
    dependencies = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    assert f"uvicorn=={version('uvicorn')}" in dependencies


@pytest.mark.parametrize("part", RELIED_ON, ids=lambda part: part.__qualname__)
def test_a_part_that_is_relied_on_has_not_changed(part: Callable[..., Any]) -> None:
    found = hashlib.sha256(inspect.getsource(part).encode()).hexdigest()
    assert found[:16] == RELIED_ON[part]


@pytest.mark.parametrize("ours", [GuardedProtocol, ExpressProtocol, _Uvicorn])
def test_every_part_that_is_overridden_is_watched(ours: type) -> None:
    for theirs in (HttpToolsProtocol, Server):
        if issubclass(ours, theirs):
            overridden = vars(ours).keys() & vars(theirs).keys() - {"__module__", "__doc__"}
            functions = {vars(theirs)[name] for name in overridden}
            assert {one for one in functions if inspect.isfunction(one)} <= RELIED_ON.keys()
