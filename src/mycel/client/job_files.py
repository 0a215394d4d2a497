"""Job files in TOML, YAML and JSON: what they say, and on which line.

A file holds a job as the REST API takes it, or a single task. Some things are the client's own:
`inputs` may name a file of lines or a pattern of files, `environment` names a file of
requirements, and whatever the API complains of is told with the line of the file.
"""

from __future__ import annotations

import glob
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .errors import JobFileError
from .job_inputs import LocalFiles
from .json_body import not_finite

_UNKNOWN_KEY: Final = re.compile(r"unknown field `([^`]+)`")
FILE_BYTES_MAX: Final = 256 << 20
INPUT_TEXT_BYTES_MAX: Final = 1 << 20
ENVIRONMENT_BYTES_MAX: Final = 1 << 20
INPUTS_MAX: Final = 1_000_000
TASK_KINDS: Final = ("command", "python", "model", "image", "driver")
_TOML_PLACE: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)

Keys = tuple[str, ...]


class JobFile:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text
        suffix = Path(name).suffix.lower()
        self._format = "toml" if suffix == ".toml" else "json" if suffix == ".json" else "yaml"
        content = self._parsed()
        if not isinstance(content, dict):
            raise JobFileError(f"{name} has to hold a table: a task, or a job")
        self._is_task = "task" not in content and any(kind in content for kind in TASK_KINDS)
        self.body: dict[str, Any] = {"task": content, "count": 1} if self._is_task else content
        self._folder = Path.cwd() if name == "-" else Path(name).resolve().parent
        self.local = LocalFiles(self._folder)
        """The files that it names, for the upload."""
        self._read_files(self.body, "$")
        self._read_environment(self.body.get("task"), "$.task")
        stages = self.body.get("stages")
        if isinstance(stages, list):
            for place, stage in enumerate(stages):
                if isinstance(stage, dict):
                    self._read_files(stage, f"$.stages[{place}]")
                    self._read_environment(stage.get("task"), f"$.stages[{place}].task")
        self._check_numbers()

    @classmethod
    def read(cls, name: str) -> JobFile:
        """`-` is standard input, in JSON or YAML."""
        if name == "-":
            return cls(name, sys.stdin.read(FILE_BYTES_MAX))
        return cls(name, _text_of(Path(name)))

    def place(self, path: str, detail: str = "") -> str:
        """Where in the file something is that the API calls `$.stages[0].task`; of a key that it
        does not know, only `detail` has the name."""
        unknown = _UNKNOWN_KEY.search(detail)
        path = f"{path}.{unknown[1]}" if unknown else path
        keys = tuple(re.findall(r"[^.$\[\]]+", path))
        if self._is_task and keys[:1] == ("task",):
            keys = keys[1:]
        try:
            lines = self._lines()
        except Exception:  # noqa: BLE001 – only a help on the way to an error
            lines = {}
        while keys and keys not in lines:
            keys = keys[:-1]
        line = f", line {lines[keys]}" if keys else ""
        return f"{self.name}{line}, at {path}" if path else self.name

    def _check_numbers(self) -> None:
        found = not_finite(self.body)
        if found is not None:
            raise self._wrong(found, "NaN or infinite, and JSON has no such number: make it a text")

    # The three formats

    def _parsed(self) -> Any:
        if self._format == "toml":
            return _parse_toml(self.name, self._text)
        if self._format == "json":
            return _parse_json(self.name, self._text)
        from .yaml_files import parse_yaml

        return parse_yaml(self.name, self._text)[0]

    def _lines(self) -> Mapping[Keys, int]:
        if self._format == "toml":
            from mycel.config.toml_lines import lines_of_keys

            return lines_of_keys(self._text)
        from .yaml_files import parse_yaml  # JSON is YAML, and this one says where things are

        return parse_yaml(self.name, self._text)[1]

    # Inputs

    def _read_files(self, table: dict[str, Any], path: str) -> None:
        self._read_inputs(table, path)
        task = table.get("task")
        if isinstance(task, dict) and ("inputs" in task or "input" in task):
            try:
                table["task"] = self.local.brought(task)
            except JobFileError as error:
                key = "inputs" if "inputs" in task else "input"
                raise self._wrong(f"{path}.task.{key}", str(error)) from error

    def _read_inputs(self, table: dict[str, Any], path: str) -> None:
        given = table.get("inputs")
        if isinstance(given, list) or given is None:
            return
        path = f"{path}.inputs"
        if not isinstance(given, dict) or len(given.keys() & {"lines", "files"}) != 1:
            raise self._wrong(
                path, 'inputs is a list, { lines = "FILE" }, or { files = "PATTERN" }'
            )
        unknown = sorted(given.keys() - {"lines", "files", "as"})
        if unknown:
            raise self._wrong(path, f"inputs has no key {unknown[0]!r}")
        source = given.get("lines", given.get("files"))
        if not isinstance(source, str) or not source:
            raise self._wrong(path, "the name of a file, or a pattern, is a text")
        folder = self._folder
        if "lines" in given:
            if "as" in given:
                raise self._wrong(path, "as belongs to files")
            table["inputs"] = self._of_lines(folder / source, path)
        else:
            table["inputs"] = self._of_files(folder, source, given.get("as", "file"), path)
        if not table["inputs"]:
            raise self._wrong(path, f"there is nothing in {source!r}")
        if len(table["inputs"]) > INPUTS_MAX:
            raise self._wrong(path, f"a job has at most {INPUTS_MAX:,} tasks")

    def _read_environment(self, task: object, path: str) -> None:
        """A text is the name of a file, whose content travels; a list is its lines."""
        if isinstance(task, dict) and isinstance(task.get("environment"), str):
            try:
                task["environment"] = read_environment(self._folder / task["environment"])
            except JobFileError as error:
                raise self._wrong(f"{path}.environment", str(error)) from error

    def _of_lines(self, file: Path, path: str) -> list[Any]:
        """A `.jsonl` file has a JSON value per line, every other one text; empty lines are
        left out."""
        try:
            lines = _text_of(file).splitlines()
        except JobFileError as error:
            raise self._wrong(path, str(error)) from error
        if file.suffix.lower() not in (".jsonl", ".ndjson"):
            return [line for line in lines if line.strip()]
        values = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    values.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise self._wrong(path, f"{file}, line {number}: {error.msg}") from error
        return values

    def _of_files(self, folder: Path, pattern: str, kind: object, path: str) -> list[Any]:
        if kind not in ("file", "path", "text"):
            raise self._wrong(path, 'as is "file", "path" or "text"')
        # Not `Path.glob`, which takes no absolute pattern.
        found = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
        files = [file for file in (folder / name for name in found) if file.is_file()]
        if kind == "file":  # it goes along with its task, which gets the path that it has there
            return [{"input": self.local.file(name)} for name in found if (folder / name).is_file()]
        if kind == "path":
            return [str(file) for file in files]
        values = []
        for file in files:
            if file.stat().st_size > INPUT_TEXT_BYTES_MAX:
                raise self._wrong(path, f"{file} is over {INPUT_TEXT_BYTES_MAX >> 20} MiB")
            values.append({"input": _text_of(file), "name": file.name})
        return values

    def _wrong(self, path: str, reason: str) -> JobFileError:
        return JobFileError(f"{self.place(path)}: {reason}")


def read_environment(file: Path) -> str:
    if file.is_file() and file.stat().st_size > ENVIRONMENT_BYTES_MAX:
        raise JobFileError(f"{file} is over {ENVIRONMENT_BYTES_MAX >> 20} MiB")
    return _text_of(file)


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise JobFileError(f"{file} is over {FILE_BYTES_MAX >> 20} MiB")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise JobFileError(f"{file} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise JobFileError(f"{file} cannot be read: {error.strerror}") from error


def _parse_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{name}, line {error.lineno}, column {error.colno}"
        raise JobFileError(f"{where}: this is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise JobFileError(f"{name}: this is too deep") from error


def _parse_toml(name: str, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.fullmatch(str(error))
        if match is None:
            raise JobFileError(f"{name}: this is not TOML: {error}") from error
        reason, line, column = match.groups()
        where = f"{name}, line {line}, column {column}"
        raise JobFileError(f"{where}: this is not TOML: {reason}") from error
    except RecursionError as error:
        raise JobFileError(f"{name}: this is too deep") from error
