"""The end of a build's network that is inside the sandbox: a port on loopback whose connections
continue on a Unix socket, where the worker's forward proxy listens (`forward_proxy`).

    python -I -S forward_relay.py SOCKET COMMAND ARGUMENT…

The command finds the port in its proxy variables; its exit code is ours. This file runs by itself
and needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

CHUNK_BYTES = 1 << 18
SCHEMES = ("http", "https", "all")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def relay(path: str, command: list[str]) -> int:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_unix_connection(path, limit=CHUNK_BYTES)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))
        finally:
            for one in (writer, to_writer):
                one.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=CHUNK_BYTES)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    environment = {k: v for k, v in os.environ.items() if k.lower() != "no_proxy"}
    for scheme in SCHEMES:
        environment[f"{scheme}_proxy"] = environment[f"{scheme}_proxy".upper()] = url
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    code = await process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    status = asyncio.run(relay(sys.argv[1], sys.argv[2:]))
    sys.stderr.flush()
    os._exit(status)  # connections that nobody has closed do not matter any more
