#!/usr/bin/env python3
"""Stands in for a role's program: has its folder, its port and its ready line, does nothing.

Called as `stub_role.py -m mycel ROLE --home H --name N --ready-fd F --config C`, in the place
of the interpreter. A file `fails` in the home makes the role of that name end at once; one
named `stubborn` makes it ignore the polite signals.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import tomllib
from pathlib import Path

from mycel.access.home import Home, write_state


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--config", type=Path)
    options = parser.parse_args(sys.argv[3:])
    home = Home(options.home)
    folder = home.role(options.name)
    if _names(home, "fails", options.name):
        print("the stub has no wish to live", file=sys.stderr)
        return 3
    with folder.lock():
        settings = tomllib.loads(options.config.read_text())
        listen = settings["swarm"]["listen"]
        ports = [int(listen[0].rpartition("/")[2])]
        addresses = [f"{one}/p2p/p" for one in listen]
        state = {"name": options.name, "pid": os.getpid(), "peer": "p", "addresses": addresses}
        if options.role == "scheduler":
            ports.append(int(settings["scheduler"]["api"]["bind_address"].rpartition(":")[2]))
            state["api"] = f"http://127.0.0.1:{ports[1]}"
        listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
        if options.role == "scheduler":
            threading.Thread(target=_tell_workers, args=(listeners[1],), daemon=True).start()
        write_state(folder.state_path, state)
        stops = {signal.SIGTERM, signal.SIGINT}  # workers get both
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        import msgspec

        os.write(options.ready_fd, msgspec.json.encode(state) + b"\n")
        while True:
            signal.sigwait(stops)
            if not _names(home, "stubborn", options.name):
                break
        for listener in listeners:
            with contextlib.suppress(OSError):  # nobody may be connected
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
    return 0


def _tell_workers(listener: socket.socket) -> None:
    """Whatever it is asked: all stubs have one peer id, and are well."""
    body = b'{"items":[{"peer_id":"p","name":"","state":"healthy","capabilities":{}}],"next":null}'
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    while True:
        connected, _ = listener.accept()
        with connected:
            connected.recv(65_536)
            connected.sendall(head + body)


def _names(home: Home, file: str, name: str) -> bool:
    path = home.path / file
    return path.exists() and path.read_text() == name


if __name__ == "__main__":
    sys.exit(main())
