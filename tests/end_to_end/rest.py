"""Raw HTTP, as `curl` would send it."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from .swarm import Swarm


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:500]!r}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    swarm: Swarm,
    method: str,
    path: str,
    body: bytes | str | None = None,
    *,
    token: str | None = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """`token` None sends none; empty is the swarm's own."""
    address = urlsplit(swarm.api)
    assert address.hostname
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    if token is not None:
        sent["Authorization"] = f"Bearer {token or swarm.token}"
    try:
        connection.request(
            method,
            path,
            body.encode() if isinstance(body, str) else body,
            {**sent, **(headers or {})},
        )
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, named, answer.read())
    finally:
        connection.close()
