"""The helper's lanes: each runs its processes one after another, without asking the worker."""

from __future__ import annotations

import errno
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from mycel.core.model.failures import LIMIT
from mycel.core.ranges import ERROR_CHARACTERS_MAX, bounded
from mycel.drivers.interface import LONG_SECONDS, Finished, FinishedState, Text
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.python.live_output import LIVE_SECONDS
from mycel.drivers.sandbox.launch import Launcher, NotVisible
from mycel.drivers.sandbox.run_confinement import RunConfinement

from .attempt_folders import AttemptFolders
from .children import QUIET_SECONDS, Child, EventLoop, spawn
from .helper_messages import Configure, ProcessRun, Report, RunProcesses

_TASK_FAULTS: Final = {
    errno.ENOENT: (127, "command not found: {!r}"),
    errno.ENOTDIR: (127, "command not found: {!r}"),
    errno.EACCES: (126, "permission denied: {!r} cannot be executed"),
    errno.ENOEXEC: (126, "not a program, nor a script that begins with #!: {!r}"),
    errno.EISDIR: (126, "a folder, not a program: {!r}"),
    errno.E2BIG: (126, "the arguments and the environment of {!r} are too long"),
}


class _NoFolder(Exception):
    """This machine's fault, not the task's."""


class _Common:
    """What the runs of one request share."""

    def __init__(self, request: RunProcesses, inherited: dict[str, str]) -> None:
        self.command = request.command
        self.timeout_seconds = request.timeout_seconds
        self.confinement = request.confinement
        self.environment = dict(inherited)
        self.environment.update(request.environment)
        self.environment["MYCEL_JOB_ID"] = request.job_id


class _Lane:
    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        self.folder = folder
        self.has_folder = False
        self.waiting: deque[tuple[ProcessRun, _Common]] = deque()
        self.running: _Running | None = None
        self.queued = False
        """Whether its next start is under way."""


class _Running:
    def __init__(self, lane: _Lane, run: ProcessRun, common: _Common) -> None:
        self.lane = lane
        self.run = run
        self.common = common
        self.child: Child | None = None
        self.is_long = False
        self.stopped_as: FinishedState | None = None


class Lanes:
    def __init__(
        self,
        watch: EventLoop,
        folders: AttemptFolders,
        launcher: Launcher,
        configuration: Configure,
        report: Callable[[], Report],
        urgent_report: Callable[[], Report],
        may_start: Callable[[], bool],
    ) -> None:
        self._watch = watch
        self._folders = folders
        self._launcher = launcher
        self._configuration = configuration
        self._report = report
        self._urgent_report = urgent_report
        self._may_start = may_start
        self._lanes: dict[int, _Lane] = {}
        self._running: dict[int, _Running] = {}
        self._held_back: list[_Lane] = []
        self._paths: dict[tuple[str, str], str] = {}

    @property
    def idle(self) -> bool:
        return not self._running

    def children(self) -> Iterable[Child]:
        return [running.child for running in self._running.values() if running.child]

    def submit(self, request: RunProcesses) -> None:
        lane = self._lanes.get(request.lane)
        if lane is None:
            folder = f"{self._configuration.root}/lane-{request.lane}"
            lane = self._lanes[request.lane] = _Lane(request.lane, folder)
        if lane.running is not None and lane.running.is_long:
            self._urgent_report().returned.append(
                (lane.number, [run.attempt for run in request.runs])
            )
            return
        common = _Common(request, self._configuration.environment)
        lane.waiting.extend((run, common) for run in request.runs)
        self._continue(lane)

    def withdraw(self, attempts: list[int]) -> None:
        wanted = set(attempts) - self._running.keys()
        for lane in self._lanes.values() if wanted else ():
            found = [run.attempt for run, _ in lane.waiting if run.attempt in wanted]
            if found:
                lane.waiting = deque(item for item in lane.waiting if item[0].attempt not in wanted)
                self._urgent_report().withdrawn.extend(found)

    def kill(self, attempts: list[int], grace_seconds: float) -> None:
        self.withdraw(attempts)
        for attempt in attempts:
            running = self._running.get(attempt)
            if running is not None:
                self._stop(running, "cancelled", grace_seconds)

    def close(self, number: int) -> None:
        lane = self._lanes.get(number)
        if lane is not None and lane.running is None and not lane.waiting:
            del self._lanes[number]
            self._drop_folder(lane)
            self._launcher.leave(f"lane-{number}")

    def go_on(self) -> None:
        """Starts what was held back."""
        held_back, self._held_back = self._held_back, []
        for lane in held_back:
            self._start(lane)

    def _continue(self, lane: _Lane) -> None:
        if lane.running is None and not lane.queued and lane.waiting:
            lane.queued = True
            self._watch.call_later(lambda: self._start(lane))

    def _start(self, lane: _Lane) -> None:
        if not self._may_start():
            self._held_back.append(lane)
            return
        lane.queued = False
        while lane.waiting and lane.running is None:
            run, common = lane.waiting.popleft()
            running = _Running(lane, run, common)
            started_at = clock()
            try:
                self._spawn(running)
            except (OSError, ValueError, _NoFolder, NotVisible) as error:
                self._urgent_report().finished.append(_not_started(running, error, started_at))

    def _spawn(self, running: _Running) -> None:
        lane, run, confinement = running.lane, running.run, running.common.confinement
        folder = run.folder or lane.folder
        self._enter_folder(lane, run.folder, confinement)
        environment = running.common.environment
        environment["MYCEL_TASK_ID"] = run.task_id
        environment["MYCEL_ATTEMPT"] = str(run.number)
        environment["MYCEL_WORKDIR"] = folder
        command = run.command or running.common.command
        path = self._path_of(command, environment, confinement, folder)
        limit = self._configuration.output_bytes_max
        launch = None
        if confinement is not None:
            self._launcher.check(path, confinement, folder)
            path = self._launcher.inside(path, confinement, folder)
            launch = self._launcher.launch(confinement, folder, f"lane-{lane.number}", environment)
        child = running.child = spawn(
            self._watch,
            path,
            command,
            environment,
            (limit, limit),
            lambda child: self._ended(running, child),
            folder=folder,
            launch=launch,
        )
        lane.running = running
        self._running[run.attempt] = running
        self._watch.call_at(child.started_at + QUIET_SECONDS, lambda: self._outlives_quiet(running))

    def _enter_folder(self, lane: _Lane, own: str, confinement: RunConfinement | None) -> None:
        try:
            if own:
                if confinement is not None:
                    self._launcher.give(own)
                os.chdir(own)
                return
            if not lane.has_folder:
                self._folders.make(lane.folder)
                lane.has_folder = True
                if confinement is not None:
                    self._launcher.give(lane.folder)
            os.chdir(lane.folder)
        except OSError as error:
            raise _NoFolder(f"no working folder: {error}") from error

    def _path_of(
        self,
        command: tuple[str, ...],
        environment: dict[str, str],
        confinement: RunConfinement | None,
        folder: str,
    ) -> str:
        """Where the command is, by the task's own PATH (posix_spawnp would take ours), and as
        far as the task can see it."""
        name = command[0] if command else ""
        if "/" in name:
            return name
        search = environment.get("PATH", os.defpath)
        path = self._paths.get((name, search))
        if path is None or not os.access(path, os.X_OK):

            def sees(path: str) -> bool:
                return confinement is None or self._launcher.sees(path, confinement, folder)

            path = _find(name, search, sees)
            if confinement is None or (not confinement.readable and not confinement.writable):
                self._paths[(name, search)] = path
        return path

    def _outlives_quiet(self, running: _Running) -> None:
        child = running.child
        if child is None or not child.alive:
            return
        child.watch_output()
        call_at = self._watch.call_at
        call_at(child.started_at + LONG_SECONDS, lambda: self._outlives_long(running))
        timeout = running.common.timeout_seconds
        if timeout is not None:
            grace = self._configuration.grace_seconds
            call_at(child.started_at + timeout, lambda: self._stop(running, "timed_out", grace))

    def _outlives_long(self, running: _Running) -> None:
        lane, child = running.lane, running.child
        if child is None or lane.running is not running:
            return
        running.is_long = True
        self._urgent_report().started.append((running.run.attempt, child.started_at))
        self._tell_output(running, child)
        if lane.waiting:
            returned = [run.attempt for run, _ in lane.waiting]
            lane.waiting.clear()
            self._urgent_report().returned.append((lane.number, returned))

    def _tell_output(self, running: _Running, child: Child) -> None:
        """From now on: what was written at once, and what comes at intervals."""
        outputs = child.live_outputs()
        is_due = True

        def wrote(stream: int, data: bytes) -> None:
            nonlocal is_due
            outputs[stream - 1].write(data)
            if not is_due:
                is_due = True
                self._watch.call_at(clock() + LIVE_SECONDS, tell)

        def tell() -> None:
            nonlocal is_due
            is_due = False
            if not child.alive or not self._may_start():  # or the worker reads too slowly
                return
            for stream, output in enumerate(outputs, 1):
                offset, data = output.take()
                if data:
                    text = Text(running.run.attempt, stream, offset, data)  # type: ignore[arg-type]
                    self._urgent_report().written.append(text)

        child.on_output = wrote
        tell()

    def _stop(self, running: _Running, state: FinishedState, grace_seconds: float) -> None:
        child = running.child
        if child is not None and child.alive:
            running.stopped_as = running.stopped_as or state
            child.stop(grace_seconds)

    def _ended(self, running: _Running, child: Child) -> None:
        lane = running.lane
        lane.running = None
        del self._running[running.run.attempt]
        # A folder as good as new goes to the next one of this lane, or with the lane.
        if not self._folders.is_clean(lane.folder):
            self._drop_folder(lane)
        report = self._report() if lane.waiting else self._urgent_report()
        report.finished.append(_finished(running, child))
        self._continue(lane)

    def _drop_folder(self, lane: _Lane) -> None:
        if lane.has_folder:
            lane.has_folder = False
            self._folders.remove(lane.folder)


def _find(name: str, search: str, sees: Callable[[str], bool]) -> str:
    if not name:
        raise ValueError("the command is empty")
    found = unseen = ""
    for folder in search.split(os.pathsep):
        path = f"{folder}/{name}" if folder else name
        # Not `Path.is_file`: it raises where a folder may not be searched.
        if os.path.isfile(path):  # noqa: PTH113
            if not os.access(path, os.X_OK):
                found = found or path
            elif sees(path):
                return path
            else:
                unseen = unseen or path
    if unseen:
        raise NotVisible(unseen)
    if found:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _finished(running: _Running, child: Child) -> Finished:
    state: FinishedState
    code = ""
    if running.stopped_as is not None:
        state = running.stopped_as
        error = (
            f"timed out after {running.common.timeout_seconds:g} s"
            if state == "timed_out"
            else "cancelled"
        )
    elif child.exit_code == 0:
        state, error = "succeeded", ""
    elif child.broken_limit:
        state, error, code = "failed", child.broken_limit, LIMIT
    else:
        state, error = "failed", describe_exit(child.exit_code)
    stdout, stderr = child.output()
    return Finished(
        attempt=running.run.attempt,  # type: ignore[arg-type]  # plain integers in the helper
        state=state,
        exit_code=child.exit_code,
        error=error,
        stdout=stdout,
        stderr=stderr,
        started_at=child.started_at,
        ended_at=child.ended_at,
        peak_memory=child.peak_memory,
        cpu_seconds=child.cpu_seconds,
        code=code,
    )


def _not_started(running: _Running, error: Exception, started_at: float) -> Finished:
    command = running.run.command or running.common.command
    name = command[0] if command else ""
    if isinstance(error, NotVisible):
        return _refused(running, str(error), started_at)
    number = error.errno if isinstance(error, OSError) else None
    exit_code, text = _TASK_FAULTS.get(number or 0, (126, ""))
    its_own = bool(text) or isinstance(error, ValueError)
    return Finished(
        attempt=running.run.attempt,  # type: ignore[arg-type]  # plain integers in the helper
        state="failed",
        exit_code=exit_code if its_own else None,
        error=_told(text.format(name) if text else f"cannot start {name!r}: {error}"),
        driver_fault=not its_own,
        started_at=started_at,
        ended_at=clock(),
    )


def _refused(running: _Running, error: str, started_at: float) -> Finished:
    return Finished(
        attempt=running.run.attempt,  # type: ignore[arg-type]  # plain integers in the helper
        state="failed",
        exit_code=127,
        error=_told(error),
        started_at=started_at,
        ended_at=clock(),
    )


def _told(error: str) -> str:
    """A command's name may be as long as a request."""
    return bounded(error, ERROR_CHARACTERS_MAX)


def describe_exit(exit_code: int) -> str:
    """`exit_code` as shells say it: 128 + n after signal n."""
    if exit_code > 128:
        number = exit_code - 128
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"exit code {exit_code}"
        return f"exit code {exit_code} (128 + {name})"
    return f"exit code {exit_code}"
