"""A program: serves a Python function as a model, on a Unix socket in its working folder.

    python function_server.py '{"python": "module:factory", "kind": "chat", "batch": 8, …}'

`factory()` is called once and returns the model: a callable that gets a list of inputs and
returns a list of as many outputs, or yields such lists, whose items are then pieces of the
outputs (None where there is nothing more). An input is the request as an object:

    chat               {"messages": […], …}       an output is a text
    completion, image  {"prompt": …, …}           a text; {"url": …} or {"b64_json": …}
    embedding          {"input": text, …}         numbers
    custom             {"input": anything, …}     anything that JSON has

Requests that come within moments of each other share a call. What the model raises is the
answer to the request that it was raised for; whoever shared the call is asked for again alone.
Nothing of Mycel is imported: it has to run in the model's own environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

READY: Final = 3
"""The descriptor on which the worker hears that the model is loaded."""
GATHER_SECONDS: Final = 0.002
"""So long a call waits for others to share it."""
HEAD_BYTES_MAX: Final = 64 << 10
BODY_BYTES_MAX: Final = 64 << 20
CHOICES_MAX: Final = 128
"""Of one request, by `n`."""

KIND_OF: Final = {
    "chat/completions": "chat",
    "completions": "completion",
    "embeddings": "embedding",
    "images/generations": "image",
    "invoke": "custom",
}
"""By route."""

Request = dict[str, Any]
_END: Final = object()


class PendingInput:
    """One input of a request, and what comes of it."""

    def __init__(self, given: Request) -> None:
        self.given = given
        self.loop = asyncio.get_running_loop()
        self.pieces: asyncio.Queue[Any] = asyncio.Queue()
        self.wanted = True

    def tell(self, piece: Any) -> None:
        self.loop.call_soon_threadsafe(self.pieces.put_nowait, piece)

    async def stream(self) -> Any:
        """Its pieces, as they come."""
        try:
            while (piece := await self.pieces.get()) is not _END:
                if isinstance(piece, BaseException):
                    raise ModelRaised(piece)
                yield piece
        finally:
            self.wanted = False

    async def whole(self) -> Any:
        pieces = [piece async for piece in self.stream()]
        if len(pieces) == 1:
            return pieces[0]
        return "".join(pieces) if all(isinstance(one, str) for one in pieces) else pieces


class ModelRaised(Exception):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the model raised {type(cause).__name__}: {cause}")


class NotEncoded(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"the model's output cannot be encoded: {cause}")


class BadRequest(Exception):
    """The model was not asked: the request is none that it could answer."""


class Calls:
    """Calls the model, on a thread of its own, with as many inputs as wait."""

    def __init__(self, model: Callable[[list[Request]], Any], batch: int) -> None:
        self._model = model
        self._batch = batch
        self._waiting: list[PendingInput] = []
        self._news = threading.Condition()

    def ask(self, given: Request) -> PendingInput:
        asked = PendingInput(given)
        with self._news:
            self._waiting.append(asked)
            self._news.notify()
        return asked

    def run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting)
                if self._batch > 1:
                    self._news.wait_for(
                        lambda: len(self._waiting) >= self._batch, timeout=GATHER_SECONDS
                    )
                together = self._waiting[: self._batch]
                del self._waiting[: self._batch]
            together = [asked for asked in together if asked.wanted]
            if together:
                self._call(together)

    def _call(self, together: list[PendingInput]) -> None:
        told = False
        try:
            for pieces in self._answers([asked.given for asked in together]):
                if len(pieces) != len(together):
                    raise ValueError(f"{len(pieces)} outputs for {len(together)} inputs")
                for asked, piece in zip(together, pieces, strict=True):
                    if piece is not None:
                        told = True
                        asked.tell(plain(piece))
                if not any(asked.wanted for asked in together):
                    return
        except BaseException as error:  # noqa: BLE001 - the edge that owns the call: told to its
            # callers. An exit too, which would end this thread alone, and all answers with it.
            if len(together) > 1 and not told:
                for asked in together:
                    self._call([asked])
                return
            for asked in together:
                asked.tell(error)
            return
        for asked in together:
            asked.tell(_END)

    def _answers(self, inputs: list[Request]) -> Iterator[list[Any]]:
        found = self._model(inputs)
        if isinstance(found, Generator):
            with contextlib.closing(found):
                yield from found
        elif isinstance(found, Iterator):
            yield from found
        else:
            yield list(found)


def plain(value: Any) -> Any:
    """Arrays as lists, so that JSON can have them."""
    return value.tolist() if hasattr(value, "tolist") else value


class Server:
    def __init__(self, name: str, kind: str, calls: Calls) -> None:
        self._name = name
        self._kind = kind
        self._calls = calls
        self._count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = None
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            body = await reader.readexactly(_length(head))
            # Whoever hangs up wants no answer any more; nobody says a second thing.
            gone = asyncio.ensure_future(reader.read(1))
            answer = asyncio.ensure_future(self._answer(writer, method, path, body))
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            if gone is not None:
                gone.cancel()
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes
    ) -> None:
        self._count += 1
        route = path.removeprefix("/v1").strip("/")
        if method == "GET":
            models = [{"id": self._name, "object": "model", "owned_by": "mycel"}]
            _whole(writer, 200, {"object": "list", "data": models})
            return
        try:
            given = json.loads(body)
            act = {
                "chat": self._chat,
                "completion": self._completion,
                "embedding": self._embeddings,
                "image": self._image,
                "custom": self._invoke,
            }[self._kind_asked(route)]
            if not isinstance(given, dict):
                raise BadRequest("a request is an object")
            await act(writer, given)
        except (ModelRaised, BadRequest) as error:
            _error(writer, str(error))
        except (TypeError, ValueError, RecursionError) as error:
            _error(writer, str(NotEncoded(error)))
        await writer.drain()

    def _kind_asked(self, route: str) -> str:
        asked = KIND_OF.get(route)
        if asked is None:
            raise BadRequest(f"there is no route {route!r}")
        if self._kind not in ("custom", asked):  # whose kind is its own takes anything
            raise BadRequest(f"{self._name!r} is a model of kind {self._kind}, not {asked}")
        return asked

    def _ask(self, given: Request, **more: Any) -> PendingInput:
        return self._calls.ask({**_without(given, "model", "stream", "input"), **more})

    async def _chat(self, writer: asyncio.StreamWriter, given: Request) -> None:
        if not isinstance(given.get("messages"), list):
            raise BadRequest("a chat has messages, which are a list")
        await self._text(writer, given, chat=True)

    async def _completion(self, writer: asyncio.StreamWriter, given: Request) -> None:
        await self._text(writer, given, chat=False)

    async def _text(self, writer: asyncio.StreamWriter, given: Request, *, chat: bool) -> None:
        alike = {
            "id": f"{self._name}-{os.getpid()}-{self._count}",
            "created": int(time.time()),
            "model": self._name,
        }
        choices_count = _choices_count(given)
        asked = [self._ask(_without(given, "n")) for _ in range(choices_count)]
        if given.get("stream") is True:
            await _stream(writer, asked, alike, chat)
            return
        outputs = await _wholes(asked)
        choices = [
            {"index": index, "finish_reason": "stop", "logprobs": None, **_said(output, chat)}
            for index, output in enumerate(outputs)
        ]
        kind = "chat.completion" if chat else "text_completion"
        usage = outputs[0].get("usage") if isinstance(outputs[0], dict) else None
        more = {} if usage is None or choices_count > 1 else {"usage": usage}
        _whole(writer, 200, {**alike, "object": kind, "choices": choices, **more})

    async def _embeddings(self, writer: asyncio.StreamWriter, given: Request) -> None:
        texts = given.get("input")
        texts = texts if isinstance(texts, list) else [texts]
        asked = [self._ask(given, input=text) for text in texts]
        vectors = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(await _wholes(asked))
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        answer = {"object": "list", "data": vectors, "model": self._name, "usage": usage}
        _whole(writer, 200, answer)

    async def _image(self, writer: asyncio.StreamWriter, given: Request) -> None:
        image = await self._ask(given).whole()
        images = image if isinstance(image, list) else [image]
        _whole(writer, 200, {"created": int(time.time()), "data": images})

    async def _invoke(self, writer: asyncio.StreamWriter, given: Request) -> None:
        _whole(writer, 200, await self._ask(given, input=given.get("input")).whole())


async def _wholes(asked: list[PendingInput]) -> list[Any]:
    try:
        return [await one.whole() for one in asked]
    finally:
        for one in asked:  # one has failed, or nobody waits for them any more
            one.wanted = False


async def _stream(
    writer: asyncio.StreamWriter, asked: list[PendingInput], alike: Request, chat: bool
) -> None:
    kind = "chat.completion.chunk" if chat else "text_completion"
    begun = False

    def event(index: int, said: Request, reason: str | None) -> None:
        nonlocal begun
        choice = {"index": index, "finish_reason": reason, **said}
        data = _encoded({**alike, "object": kind, "choices": [choice]})
        if not begun:
            begun = True
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        _event(writer, data)

    async def tell(index: int, one: PendingInput) -> None:
        async for piece in one.stream():
            text = _text_of(piece)
            event(index, {"delta": {"content": text}} if chat else {"text": text}, None)
            await writer.drain()
        event(index, {"delta": {}} if chat else {"text": ""}, "stop")

    telling = [asyncio.ensure_future(tell(index, one)) for index, one in enumerate(asked)]
    try:
        await asyncio.gather(*telling)
    except (ModelRaised, TypeError, ValueError, RecursionError) as error:
        if not begun:
            raise
        told = error if isinstance(error, ModelRaised) else NotEncoded(error)
        _event(writer, _encoded({"error": {"message": str(told), "type": "model_error"}}))
    else:
        _event(writer, "[DONE]")
    finally:
        for task, one in zip(telling, asked, strict=True):
            task.cancel()
            one.wanted = False
    writer.write(b"0\r\n\r\n")


def _choices_count(given: Request) -> int:
    count = given.get("n")
    if count is None:
        return 1
    if type(count) is not int or not 1 <= count <= CHOICES_MAX:
        raise BadRequest(f"n is a whole number from 1 to {CHOICES_MAX}")
    return count


def _said(output: Any, chat: bool) -> Request:
    text = _text_of(output)
    return {"message": {"role": "assistant", "content": text}} if chat else {"text": text}


def _text_of(output: Any) -> str:
    text = output.get("text") if isinstance(output, dict) else output
    if not isinstance(text, str):
        raise TypeError(f"it is a text, or an object with one, not {type(text).__name__}")
    return text


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    whole = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%b\r\n" % (len(whole), whole))


def _whole(writer: asyncio.StreamWriter, status: int, document: Any) -> None:
    data = _encoded(document).encode()
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    writer.write(head.encode() + b"\r\n\r\n" + data)


def _encoded(document: Any) -> str:
    """JSON in the strict sense, which has no infinities and nothing that is not a number."""
    return json.dumps(document, allow_nan=False)


def _error(writer: asyncio.StreamWriter, message: str) -> None:
    """Not to be tried again elsewhere: the same model would raise the same there."""
    _whole(writer, 400, {"error": {"message": message, "type": "model_error"}})


def _without(given: Request, *names: str) -> Request:
    return {name: value for name, value in given.items() if name not in names}


def _length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
            if length > BODY_BYTES_MAX:
                raise ValueError(length)
            return length
    return 0


def load(entry: str) -> Callable[[list[Request]], Any]:
    module, _, name = entry.partition(":")
    model = getattr(importlib.import_module(module), name)()
    if not callable(model):
        sys.exit(f"{entry} returned {type(model).__name__}, which is not callable")
    return model  # type: ignore[no-any-return]


async def serve(given: Request, calls: Calls) -> None:
    server = Server(given["name"], given["kind"], calls)
    await asyncio.start_unix_server(server.serve, given["socket"], limit=HEAD_BYTES_MAX)
    os.write(READY, b"ready")
    threading.Thread(target=calls.run, daemon=True, name="model").start()
    await asyncio.Event().wait()


def main() -> None:
    given = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    sys.path.insert(0, given["folder"] or str(Path.cwd()))
    calls = Calls(load(given["python"]), given["batch"])
    asyncio.run(serve(given, calls))


if __name__ == "__main__":
    main()
