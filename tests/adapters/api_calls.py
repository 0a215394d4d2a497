"""How the API's tests talk to it: plain HTTP by the standard library."""

from __future__ import annotations

import http.client
import json
from typing import Any

from .api_access import TOKEN
from .api_server import Served

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
LIMIT = 100_000
JOB = "01jabcdefghjkmnpqrstvwxyz0"


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    server: Served, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, raw, AUTHORIZED | (headers or {}))
        return Answer(connection.getresponse())
    finally:
        connection.close()


def submit(server: Served, body: dict[str, Any], query: str = "") -> Any:
    answer = call(server, "POST", f"/api/v1/tasks{query}", body)
    assert answer.status == 201, answer.body
    return answer.json
