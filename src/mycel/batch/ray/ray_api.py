"""Calls of Ray's job submission API: HTTP, with a deadline and a bound on each answer."""

from __future__ import annotations

import http.client
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import BatchFailure

SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 256 << 20


class RayApi:
    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        """Raises BatchError."""
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            raise BatchError(BatchFailure.MISSING, f"{address!r} is no http:// address of Ray")
        self._address: Final = address
        self._host: Final = parts.hostname
        self._port: Final = parts.port or 8265
        self._seconds = seconds

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and what the JSON holds; the text, where it is no JSON. Raises BatchError."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
        data = None if body is None else msgspec.json.encode(body)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise BatchError(
                BatchFailure.SLOW, f"Ray at {self._address} gave no answer in {self._seconds:g} s"
            ) from None
        except ConnectionRefusedError:
            raise BatchError(
                BatchFailure.DOWN, f"Ray at {self._address} cannot be reached"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise BatchError(
                BatchFailure.SLOW, f"Ray at {self._address} broke off: {error!r}"
            ) from None
        finally:
            connection.close()
        try:
            return answer.status, msgspec.json.decode(said)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answer.status, said.decode(errors="replace")

    def ask(self, path: str) -> Any:
        """JSON, or an error. Raises BatchError."""
        status, answer = self.call("GET", path)
        if status != 200 or isinstance(answer, str):
            raise nonsense(path, answer)
        return answer


def nonsense(path: str, answer: object) -> BatchError:
    return BatchError(
        BatchFailure.NONSENSE, f"Ray answered {path} with what cannot be read: {answer!s:.200}"
    )
