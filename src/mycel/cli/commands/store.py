"""`mycel store check [--repair]|export|import`: a scheduler's journal, as a whole.

0  done, the journal is sound        1  it is not, or could not be read or written
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mycel.access.home import RoleFolder, find_home
from mycel.access.secret_files import sync_folder
from mycel.console.errors import CommandError
from mycel.console.tables import print_json


def main(given: list[str]) -> int:
    options = ArgumentParser(
        prog="mycel store",
        description="Check, export or import a scheduler's journal.",
        allow_abbrev=False,
    )
    commands = options.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check", help="verify its rules and digests; the scheduler may run meanwhile"
    )
    check.add_argument(
        "--repair",
        action="store_true",
        help="mend what a scheduler can do without; the scheduler must not run",
    )
    export = commands.add_parser(
        "export", help="write all of it as lines of JSON; the scheduler may run meanwhile"
    )
    export.add_argument("file", metavar="FILE", help="'-' is standard output")
    take = commands.add_parser("import", help="make a journal of an export, where there is none")
    take.add_argument("file", metavar="FILE", help="'-' is standard input")
    take.add_argument(
        "--config", type=Path, metavar="FILE", help="whose swarm it must be; else any swarm's"
    )
    options.set_defaults(home=None, name="scheduler", json=False)
    for one in (options, check, export, take):  # before the command's name or behind it
        one.add_argument(
            "--home", metavar="DIR", help="MYCEL_HOME, else ~/.mycel", default=SUPPRESS
        )
        one.add_argument("--name", help="of the scheduler's folder", default=SUPPRESS)
        one.add_argument("--json", action="store_true", help="print JSON", default=SUPPRESS)
    chosen = options.parse_args(given)
    folder = find_home(chosen.home, os.environ).role(chosen.name)
    act = {"check": _check, "export": _export, "import": _import}[chosen.command]
    try:
        return act(chosen, folder)
    except OSError as error:
        raise CommandError(f"{error.filename or chosen.file}: {error.strerror}") from error


def _journal(folder: RoleFolder) -> Path:
    return folder.path / "journal.db"


def _check(chosen: Namespace, folder: RoleFolder) -> int:
    from mycel.store.journal_check import check

    mended = _repaired(folder) if chosen.repair else []
    verdict = check(_journal(folder))
    if chosen.json:
        print_json({"ok": verdict.is_sound, "verdict": verdict, "mended": mended})
    else:
        for line in mended:
            print(f"mended: {line}")
        state = "sound" if verdict.is_sound else "NOT SOUND"
        print(f"{verdict.path} is {state}: {verdict.jobs} jobs, {verdict.results} results")
        if verdict.values_in_files:
            print(f"  {verdict.values_in_files} values are in files")
        if verdict.stray_files:
            print(f"  {verdict.stray_files} stray files; the scheduler's next start removes them")
        for complaint in verdict.complaints:
            print(f"  {complaint}")
    return 0 if verdict.is_sound else 1


def _repaired(folder: RoleFolder) -> list[str]:
    from mycel.store.journal_repair import repair
    from mycel.store.sqlite.database import open_for_inspection
    from mycel.store.sqlite.schema import JOURNAL_FORMAT

    open_for_inspection(_journal(folder), JOURNAL_FORMAT).close()  # nothing is made where none is
    with folder.lock():
        return repair(_journal(folder))


def _export(chosen: Namespace, folder: RoleFolder) -> int:
    from mycel.store.export import export

    if chosen.file == "-":
        counts = export(_journal(folder), sys.stdout.buffer)
        sys.stdout.flush()
        return 0
    place = Path(chosen.file)
    with _taking_the_place_of(place) as out:
        counts = export(_journal(folder), out)
    if chosen.json:
        print_json(counts)
    else:
        print(f"{counts.rows} rows and {counts.files} files are in {place}")
    return 0


@contextmanager
def _taking_the_place_of(place: Path) -> Iterator[BinaryIO]:
    """An earlier export stays until this one is whole: it may be the last good one."""
    if place.exists() and not place.is_file():  # a pipe, or a device
        with place.open("wb") as out:
            yield out
        return
    place = place.resolve()
    part = place.with_name(f".{place.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(place.parent)


@contextmanager
def _left_as_it_was(folder: RoleFolder) -> Iterator[None]:
    """Its lock makes the folder: where nothing comes of it, that goes again."""
    made = [path for path in (folder.path, folder.path.parent) if not path.exists()]
    try:
        yield
    except BaseException:
        if folder.path in made:
            folder.lock_path.unlink(missing_ok=True)
        for path in made:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()
        raise


def _import(chosen: Namespace, folder: RoleFolder) -> int:
    from mycel.config import load
    from mycel.store.export import import_journal

    swarm = ""
    if chosen.config is not None:
        swarm = load(chosen.config, dict(os.environ), {}).swarm.name
    with _left_as_it_was(folder), folder.lock():
        if chosen.file == "-":
            counts = import_journal(_journal(folder), sys.stdin.buffer, swarm=swarm)
        else:
            with Path(chosen.file).open("rb") as source:
                counts = import_journal(_journal(folder), source, swarm=swarm)
    if chosen.json:
        print_json(counts)
    else:
        print(f"{counts.rows} rows and {counts.files} files of swarm {counts.swarm!r} are taken in")
    return 0
