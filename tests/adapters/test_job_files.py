"""Job files: three formats, one meaning, and errors with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mycel.client.errors import JobFileError
from mycel.client.job_files import JobFile

SAME = {
    "a.toml": """
name = "n"
count = 2
[task]
command = ["echo", "a"]
[task.requirements]
cpu_cores = 0.5
""",
    "a.yaml": """
name: n
count: 2
task:
  command: [echo, a]
  requirements: {cpu_cores: 0.5}
""",
    "a.json": """{
  "name": "n", "count": 2,
  "task": {"command": ["echo", "a"],
           "requirements": {"cpu_cores": 0.5}}
}""",
}


@pytest.mark.parametrize("name", SAME)
def test_the_formats_mean_the_same_and_know_their_lines(name: str) -> None:
    file = JobFile(name, SAME[name])
    assert file.body == {
        "name": "n",
        "count": 2,
        "task": {"command": ["echo", "a"], "requirements": {"cpu_cores": 0.5}},
    }
    line = {"a.toml": 7, "a.yaml": 6, "a.json": 4}[name]
    assert file.place("$.task.requirements.cpu_cores") == (
        f"{name}, line {line}, at $.task.requirements.cpu_cores"
    )
    assert file.place("$.nowhere") == f"{name}, at $.nowhere"


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.toml", 'command = ["a"]\nrequirements.cpu_cores = inf\n', "a.toml, line 2"),
        ("a.toml", 'task.python = "m:f"\nmatrix.rate = [0.1, nan]\n', "a.toml, line 2"),
        ("a.json", '{"command": ["a"],\n "timeout": NaN}', "a.json, line 2"),
    ],
)
def test_a_number_that_json_does_not_have_is_refused(name: str, text: str, place: str) -> None:
    with pytest.raises(JobFileError, match="NaN or infinite") as caught:
        JobFile(name, text)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    ("name", "before"), [("a.toml", "a = "), ("a.json", '{"a": '), ("a.yaml", "a: "), ("b.yml", "")]
)
def test_a_file_that_nests_without_end_is_refused(name: str, before: str) -> None:
    nested = "- " * 100_000 if name == "b.yml" else "[" * 100_000
    with pytest.raises(JobFileError, match="too deep"):
        JobFile(name, before + nested)


def test_a_single_task_is_a_job_of_one() -> None:
    file = JobFile("a.yaml", "command: [a]\ntimeout: -1\n")
    assert file.body == {"task": {"command": ["a"], "timeout": -1}, "count": 1}
    assert file.place("$.task.timeout") == "a.yaml, line 2, at $.task.timeout"


def test_places_within_stages_are_found() -> None:
    text = "stages:\n- name: a\n  task: {command: [a]}\n- name: b\n  needs: [c]\n"
    file = JobFile("a.yml", text)
    assert file.place("$.stages[1].needs") == "a.yml, line 5, at $.stages[1].needs"
    toml = '[[stages]]\nname = "a"\n[[stages]]\nname = "b"\nneeds = ["c"]\n'
    assert JobFile("a.toml", toml).place("$.stages[1].needs").startswith("a.toml, line 5")


def test_a_key_that_nobody_knows_has_its_line() -> None:
    told = "Object contains unknown field `timeot`"
    file = JobFile("a.toml", 'command = ["a"]\ntimeot = 1\n[requirements]\ncores = 1\n')
    assert file.place("$.task", told) == "a.toml, line 2, at $.task.timeot"
    told = "Object contains unknown field `cores`"
    assert file.place("$.task.requirements", told).startswith("a.toml, line 4, ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("012", 12),
        ("0x1F", "0x1F"),
        ("true", True),
        ("~", None),
        ("12", 12),
        ("-1.5e3", -1500.0),
        ("1e3", 1000.0),
        ('"no"', "no"),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("'12'", "12"),
        ("2026-01-01", "2026-01-01"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_yaml_means_what_it_looks_like(text: str, value: Any) -> None:
    assert JobFile("a.yaml", f"task: {text}\n").body["task"] == value


def test_yaml_merges_tables() -> None:
    text = "base: &base {a: 1, b: 2}\ntask:\n  <<: *base\n  b: 3\n"
    assert JobFile("a.yaml", text).body["task"] == {"a": 1, "b": 3}


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "task: [\n", "a.yaml, line 2, column 1: this is not YAML"),
        ("a.yaml", "task: 1\ntask: 2\n", "line 2, column 1: the key 'task' stands here twice"),
        ("a.yaml", "task: !!python/object:os.system x\n", "line 1, column 7: the tag"),
        ("a.yaml", "? [a]\n: b\n", "a key is a text"),
        ("a.yaml", LAUGHS, "too large"),
        ("a.yaml", "- 1\n", "has to hold a table"),
        ("a.yaml", "", "has to hold a table"),
        ("a.json", "{", "a.json, line 1, column 2: this is not JSON"),
        ("a.toml", "a = \n", "a.toml, line 1, column 5: this is not TOML"),
        ("a.yaml", "inputs: 3\n", "line 1, at $.inputs: inputs is a list"),
        ("a.yaml", "name: x\ninputs: {lines: nowhere.txt}\n", "line 2, at $.inputs"),
        ("a.yaml", "inputs: {lines: a, colour: b}\n", "no key 'colour'"),
        ("a.yaml", "inputs: {files: '*.nothing'}\n", "there is nothing in '*.nothing'"),
        ("a.yaml", "inputs: {files: '*', as: sound}\n", '"path" or "text"'),
        ("a.yaml", "inputs: {lines: [a]}\n", "is a text"),
    ],
)
def test_a_wrong_file_says_where(name: str, text: str, said: str) -> None:
    with pytest.raises(JobFileError) as caught:
        JobFile(name, text)
    assert said in str(caught.value)


def test_inputs_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("a b\n\n c \n")
    (tmp_path / "lines.jsonl").write_text('{"x": 1}\n"text"\n')
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{\n')
    (tmp_path / "one.txt").write_text("1")
    (tmp_path / "two.txt").write_text("2")

    def inputs(line: str) -> Any:
        return JobFile(str(tmp_path / "job.yaml"), f"inputs: {line}\n").body["inputs"]

    assert inputs("{lines: words}") == ["a b", " c "]
    assert inputs("{lines: lines.jsonl}") == [{"x": 1}, "text"]
    names = ("one.txt", "two.txt")
    brought = [one["input"] for one in inputs("{files: '*.txt'}")]
    assert [one["path"] for one in brought] == list(names)
    assert all(one["$file"].startswith("blake3:") for one in brought)
    assert inputs("{files: '*.txt', as: path}") == [str(tmp_path / name) for name in names]
    assert inputs(f"{{files: '{tmp_path}/one.*', as: text}}") == [{"input": "1", "name": "one.txt"}]
    with pytest.raises(JobFileError, match="line 2"):
        inputs("{lines: bad.jsonl}")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="cannot be read"):
        JobFile.read(str(tmp_path / "nowhere.toml"))
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(JobFileError, match="not UTF-8"):
        JobFile.read(str(tmp_path / "a.toml"))
