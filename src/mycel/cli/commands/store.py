"""`mycel store check [--repair]|export|import`: a scheduler's journal, as a whole.

0  done, the journal is sound        1  it is not, or could not be read or written
"""

from __future__ import annotations

import os
import sys
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from mycel.access.home import RoleFolder, find_home
from mycel.access.secret_files import sync_folder
from mycel.cli.command_parser import CommandParser
from mycel.console.errors import CommandError
from mycel.console.tables import print_json, size
from mycel.store.export import import_journal
from mycel.store.long_values import ValueFiles

if TYPE_CHECKING:
    from mycel.blobs.blob_export import BlobCounts


def main(given: list[str]) -> int:
    options = CommandParser(
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
        "export",
        help="write all of it, with long results and files, as lines of JSON; the scheduler may "
        "run meanwhile",
    )
    export.add_argument("file", metavar="FILE", help="'-' is standard output")
    export.add_argument(
        "--without-files", action="store_true", help="of tasks: what they need and what they left"
    )
    take = commands.add_parser("import", help="make a journal of an export, where there is none")
    take.add_argument("file", metavar="FILE", help="'-' is standard input")
    take.add_argument(
        "--config", type=Path, metavar="FILE", help="whose swarm it must be; else any swarm's"
    )
    for one in (export, take):
        one.add_argument("--force", action="store_true", help="replace what is there already")
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
    from mycel.blobs.blob_export import BlobExport
    from mycel.store.export import export

    blobs = BlobExport(folder.path / "blobs", with_files=not chosen.without_files)
    if chosen.file == "-":
        export(_journal(folder), sys.stdout.buffer, blobs.lines())
        sys.stdout.flush()
        _say_what_is_left(blobs.counts)
        return 0
    place = Path(chosen.file)
    if place.is_file() and not chosen.force:
        raise CommandError(f"{place} exists already: name another file, or give --force")
    with _taking_the_place_of(place) as out:
        counts = export(_journal(folder), out, blobs.lines())
    if chosen.json:
        print_json({**msgspec.structs.asdict(counts), "blobs": blobs.counts})
        return 0
    print(
        f"{counts.rows} rows, {counts.files} long results and {_blobs(blobs.counts)} are in {place}"
    )
    _say_what_is_left(blobs.counts)
    return 0


def _blobs(counts: BlobCounts) -> str:
    return f"{counts.files} files ({size(counts.bytes)})"


def _say_what_is_left(counts: BlobCounts) -> None:
    if counts.left:
        left = f"{counts.left} files ({size(counts.left_bytes)}) are not in it"
        print(f"mycel: {left}: what tasks have left there 'mycel get' will miss", file=sys.stderr)
    if counts.with_workers:
        print(
            f"mycel: {counts.with_workers} files lie with workers, and stay there", file=sys.stderr
        )


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
    from mycel.blobs.blob_export import BlobImport
    from mycel.config import load

    swarm = ""
    if chosen.config is not None:
        swarm = load(chosen.config, dict(os.environ), {}).swarm.name
    with ExitStack() as stack:
        source = sys.stdin.buffer
        if chosen.file != "-":
            source = stack.enter_context(Path(chosen.file).open("rb"))
        stack.enter_context(_left_as_it_was(folder))
        stack.enter_context(folder.lock())
        aside = stack.enter_context(_aside(folder, force=chosen.force))
        blobs = BlobImport(folder.path / "blobs")
        counts = import_journal(_journal(folder), source, swarm=swarm, beside=blobs)
    if chosen.json:
        print_json({**msgspec.structs.asdict(counts), "blobs": blobs.counts})
        return 0
    taken = f"{counts.rows} rows, {counts.files} long results and {_blobs(blobs.counts)}"
    print(f"{taken} of swarm {counts.swarm!r} are taken in")
    if aside is not None:
        print(f"mycel: what was there before is in {aside}", file=sys.stderr)
    return 0


@contextmanager
def _aside(folder: RoleFolder, *, force: bool) -> Iterator[Path | None]:
    """Where an earlier journal is kept, with what stands beside it; it comes back if the import
    fails. Without `force` it is not touched; what is left of one that is gone is put aside."""
    found = [folder.path / name for name in ("journal.db", "journal.db-wal", "journal.db-shm")]
    found += [ValueFiles(_journal(folder)).folder, folder.path / "blobs"]
    found = [path for path in found if path.exists()]
    if not found:
        yield None
        return
    if _journal(folder).exists() and not force:
        raise CommandError(f"{_journal(folder)} exists already: --force puts it aside")
    aside = folder.path / f"replaced-{time.time_ns() // 1_000_000}"
    aside.mkdir(mode=0o700)
    for path in found:
        path.rename(aside / path.name)
    try:
        yield aside
    except BaseException:
        for path in found:
            (aside / path.name).rename(path)
        aside.rmdir()
        raise
