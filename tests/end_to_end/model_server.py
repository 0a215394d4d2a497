"""A model server of another make, as a worker's owner may run one: OpenAI's routes over HTTP.

`python model_server.py NAME` prints its port, and answers with its name and the last words
that it was asked. One named `mute` never answers, one named `liar` never answers in JSON, one
named `sick` always has a fault of its own. A prompt says how it should behave:

    slow        a token every 50 ms
    endless     the same, until nobody listens any more
    hang        the first token never comes
    teapot      a refusal
    nonsense    an answer that is no JSON
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

TOKENS = 40


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(
        (
            int(line[15:])
            for line in head.split("\r\n")
            if line.lower().startswith("content-length")
        ),
        0,
    )
    body = json.loads(await reader.readexactly(length) or b"{}")
    try:
        await respond(writer, head.split(" ")[1], body)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def respond(writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> None:
    if path.endswith("/models"):
        names = [f"{sys.argv[1]}-chat", f"{sys.argv[1]}-embed"]
        whole(writer, 200, {"object": "list", "data": [{"id": name} for name in names]})
        return
    prompt = str(body.get("prompt") or body.get("input") or body["messages"][-1]["content"])
    if "hang" in prompt or sys.argv[1] == "mute":
        await asyncio.Event().wait()
    if "teapot" in prompt:
        whole(writer, 418, {"error": {"message": "short and stout"}})
    elif "too fast" in prompt:
        whole(writer, 429, {"error": {"message": "come back later"}})
    elif sys.argv[1] == "sick":
        whole(writer, 500, {"error": {"message": "out of memory"}})
    elif "nonsense" in prompt or sys.argv[1] == "liar":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<hm>")
    elif path.endswith("/embeddings"):
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        vectors = [{"index": n, "embedding": [float(len(text))]} for n, text in enumerate(given)]
        whole(writer, 200, {"object": "list", "data": vectors, "model": body["model"]})
    elif body.get("stream"):
        await stream(writer, prompt)
    else:
        text = f"{sys.argv[1]} says {prompt}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text}
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        whole(writer, 200, {"id": "x", "model": body["model"], "choices": [choice], "usage": usage})
    await writer.drain()


async def stream(writer: asyncio.StreamWriter, prompt: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    words = itertools.cycle([sys.argv[1], *prompt.split()])
    for word in words if "endless" in prompt else itertools.islice(words, TOKENS):
        delta = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
        event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk(writer, f"data: {json.dumps({**event, 'choices': [delta]})}\n\n".encode())
        await writer.drain()
        if "slow" in prompt or "endless" in prompt:
            await asyncio.sleep(0.05)
    chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def whole(writer: asyncio.StreamWriter, status: int, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
