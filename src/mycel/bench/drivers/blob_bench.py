"""`mycel bench blobs`: how fast a blob moves between two nodes, against a plain socket.

Both ends are processes of their own, and both ways end with the same file on the same disk, synced:
by a blob stream (encrypted, verified, in pieces that the receiver asks for), and by `sendall` and
`recv` of the same size. They take turns, and the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from mycel.bench.percentiles import median
from mycel.console.errors import CommandError
from mycel.console.tables import print_json
from mycel.local.scratch_homes import default_folder, workspace

SIZE_MB: Final = 256
ROUNDS: Final = 3
CHUNK_BYTES: Final = 1 << 20


class _Ready(msgspec.Struct):
    address: str
    port: int
    digest: str


def measure(folder: Path, size_mb: int = SIZE_MB, rounds: int = ROUNDS) -> dict[str, Any]:
    """The figures, flat; `folder` is on a disk, and is left as it was found."""
    with tempfile.TemporaryDirectory(prefix="blobs-", dir=folder) as own:
        return _measure(Path(own), size_mb, rounds)


def _measure(folder: Path, size_mb: int, rounds: int) -> dict[str, Any]:
    source = folder / "source"
    with source.open("wb") as file:
        for _ in range(size_mb):
            file.write(os.urandom(CHUNK_BYTES))
    owner = os.urandom(32).hex()
    command = [sys.executable, "-m", "mycel.bench.drivers.blob_peer", owner, str(folder / "there")]
    with subprocess.Popen([*command, str(source)], stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        try:
            line = peer.stdout.readline()
            if not line:
                raise CommandError("the other node did not start")
            ready = msgspec.json.decode(line, type=_Ready)
            rounding = _rounds(folder, bytes.fromhex(owner), ready, size_mb, rounds)
            samples = uvloop.run(rounding)
        finally:
            peer.kill()
    blob, plain = (median(sorted(seconds)) for seconds in samples)
    return {
        "blob_mb_per_s": round(size_mb * 1.048576 / blob, 1),
        "ref_socket_mb_per_s": round(size_mb * 1.048576 / plain, 1),
        "blob_of_socket": round(plain / blob, 3),
        "blob_size_mb": round(size_mb * 1.048576, 1),
    }


async def _rounds(
    folder: Path, owner: bytes, ready: _Ready, size_mb: int, rounds: int
) -> tuple[list[float], list[float]]:
    from mycel.bench.swarm.node_host import start_node
    from mycel.blobs.blob_messages import Found, Get, Kept
    from mycel.blobs.blob_server import BlobServer
    from mycel.blobs.blob_store import BlobStore
    from mycel.blobs.blob_streams import expect
    from mycel.blobs.digests import Digest
    from mycel.blobs.transfer import receive
    from mycel.core.identifiers import PeerId
    from mycel.testing.blobs.blob_listener import BlobListener

    size = size_mb << 20
    store = BlobStore(folder / "here", 4 * size)
    node = BlobServer(store, lambda *_, **__: None)
    listener = BlobListener(node.channels)
    swarm = await start_node(listener, owner, "worker", "/ip4/127.0.0.1/tcp/0")
    listener.start(swarm)
    digest, peer = Digest(ready.digest), PeerId(ready.address.rpartition("/p2p/")[2])
    blob, plain = [], []
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            channel = await node.channels.open(peer, (ready.address,))
            channel.write(Get(digest))
            found = await expect(channel, Found)
            await receive(channel, store.begin(digest, found.size), node.threads, node.traffic)
            channel.write(Kept())
            channel.close()
            blob.append(time.perf_counter() - began)
            store.remove(digest)
            began = time.perf_counter()
            await asyncio.to_thread(_copy, ready.port, folder / "copy")
            plain.append(time.perf_counter() - began)
            (folder / "copy").unlink()
    finally:
        await node.stop()
        await swarm.stop()
    return blob, plain


def _copy(port: int, target: Path) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, target.open("wb") as file:
        buffer = bytearray(CHUNK_BYTES)
        while count := connection.recv_into(buffer):
            file.write(memoryview(buffer)[:count])
        file.flush()
        os.fsync(file.fileno())


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench blobs", description="Move a file between two nodes."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--size", type=int, default=SIZE_MB, metavar="MIB", help="(256)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(3)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on a disk")
    options = parser.parse_args(given)
    if options.size < 1 or options.rounds < 1:
        raise CommandError("--size and --rounds are 1 or more")
    with workspace(options.folder or default_folder()) as own:
        figures = measure(own, options.size, options.rounds)
    if options.json:
        print_json(figures)
    else:
        print(f"blob stream   {figures['blob_mb_per_s']:>8} MB/s")
        print(f"plain socket  {figures['ref_socket_mb_per_s']:>8} MB/s")
        print(f"share         {figures['blob_of_socket']:>8.0%}")
    return 0
