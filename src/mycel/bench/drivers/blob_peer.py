"""The other end of `mycel bench blobs`: gives one file away, by a blob stream or a plain socket."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from pathlib import Path

import msgspec

from mycel.bench.swarm.node_host import start_node
from mycel.blobs.blob_messages import BlobMessage, Found
from mycel.blobs.blob_server import BlobServer
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.blob_streams import Channel
from mycel.blobs.digests import Digest
from mycel.blobs.transfer import answer_pieces
from mycel.testing.blobs.blob_listener import BlobListener

CHUNK_BYTES = 1 << 20


class Giver(BlobServer):
    digest: Digest

    async def answer(self, channel: Channel, first: BlobMessage) -> None:
        channel.write(Found(self.store.size(self.digest)))
        await answer_pieces(channel, self.store, self.digest, self.threads, self.traffic)


def _serve_plain(listening: socket.socket, source: Path) -> None:
    while True:
        connection, _ = listening.accept()
        with connection, source.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                connection.sendall(data)


async def main(owner: str, folder: Path, source: Path) -> None:
    giver = Giver(BlobStore(folder, 1 << 40), lambda *_, **__: None)
    giver.digest = giver.store.put_file(source)
    listener = BlobListener(giver.channels)
    swarm = await start_node(listener, bytes.fromhex(owner), "worker", "/ip4/127.0.0.1/tcp/0")
    listener.start(swarm)
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve_plain, args=(listening, source), daemon=True).start()
    ready = {
        "address": swarm.addresses[0],
        "port": listening.getsockname()[1],
        "digest": giver.digest,
    }
    print(msgspec.json.encode(ready).decode(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
