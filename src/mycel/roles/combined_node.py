"""`mycel node`: a scheduler and a worker in one process.

Each has its own folder, identity and machine, as if it ran alone; they share the process, its
loop and the network's threads, and the worker is told of the scheduler instead of having to find
it. Whichever ends, by a signal or a fault, ends both.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from mycel.access.founder import found
from mycel.access.key_files import load_or_create_key
from mycel.access.tokens import store_member_token
from mycel.core.identifiers import PeerId
from mycel.core.messages import PeerRecord
from mycel.drivers.helper.spawn_helper import HelperHandle
from mycel.membership.arrival import NotAdmitted

from .role_process import EXPECTED, Program, RoleFault, complain, run_loop
from .scheduler import program as scheduler_program
from .worker import program as worker_program


def main(options: Any, end: HelperHandle) -> int:
    """`options` are `cli.roles.RoleOptions`: both roles get them under their own names."""
    with ExitStack() as stack:
        try:
            programs = []
            for role in ("scheduler", "worker"):
                fd = options.ready_fd if role == "scheduler" else None
                own = msgspec.structs.replace(options, role=role, name=role, ready_fd=fd)
                program = Program(own)
                stack.callback(program.close)
                _admit(program, role)
                programs.append(program)
        except EXPECTED as error:
            return complain(options, error)
        try:
            run_loop(_serve(programs[0], programs[1], options.port, end))
        except (*EXPECTED, RoleFault, NotAdmitted, OSError) as error:
            return complain(options, error)
    return 0


def _admit(program: Program, role: str) -> None:
    """The swarm's owner need not invite themselves."""
    from mycel import _native

    folder, home = program.folder, program.home
    if folder.member_token_path.exists() or not home.owner_key_path.exists():
        return
    founder = found(home, program.configuration.swarm.name)
    secret = load_or_create_key(folder.identity_path, "this node's identity")
    token = founder.member_token(_native.identity(secret)[1], (role,))
    store_member_token(folder.member_token_path, token)


async def _serve(
    of_scheduler: Program, of_worker: Program, port: int | None, end: HelperHandle
) -> None:
    """The worker starts when the scheduler serves, and stops first: its results are taken."""
    of_scheduler.ends_last = True
    of_scheduler.companions.append(of_worker)
    of_worker.companions.append(of_scheduler)
    serving = asyncio.ensure_future(scheduler_program.serve(of_scheduler, port))
    started = asyncio.ensure_future(of_scheduler.started.wait())
    await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if serving.done():
        await serving
        return
    me = PeerRecord(PeerId(of_scheduler.peer), ("scheduler",), tuple(of_scheduler.addresses))
    working = asyncio.ensure_future(
        worker_program.serve(of_worker, end, introduce=partial(_introduce, me))
    )
    try:
        await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        of_worker.end()
        of_scheduler.end()
        ends = await asyncio.gather(working, serving, return_exceptions=True)
    for one in ends:
        if isinstance(one, BaseException):
            raise one


def _introduce(scheduler_record: PeerRecord, node: Any) -> None:
    node.peer_found(scheduler_record)
