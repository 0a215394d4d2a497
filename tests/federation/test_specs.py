"""Job specs in three formats become one tree; what is wrong is named with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.federation.errors import FederationError, SpecError
from mycel.core.federation.graph.idsets import parse_hostlist, parse_idset
from mycel.core.federation.request.constraints import parse_constraint
from mycel.core.federation.request.counts import UNLIMITED, Count, parse_count, ranged
from mycel.core.federation.request.request_tree import Require
from mycel.federation.specs.spec_reader import read_spec, read_spec_file

from .brute_force import acceptable
from .data import DATA, needs_data

FLUX = """\
version: 9999
resources:
  - type: node
    count: {min: 2, max: 8, operator: "*", operand: 2}
    exclusive: true
    with:
      - type: slot
        label: task
        count: 1
        with:
          - {type: core, count: 4}
tasks:
  - {command: [app], slot: task, count: {per_slot: 1}}
attributes:
  system:
    duration: 90.5
    constraints: {and: [{hostlist: ["n[0-3]"]}, {not: [{properties: ["slow"]}]}]}
"""


def flux(old: str, new: str) -> str:
    assert old in FLUX
    return FLUX.replace(old, new)


def test_a_flux_spec_keeps_what_it_says() -> None:
    job = read_spec(FLUX)
    (node,) = job.resources
    assert node.count == Count(2, 8, "*", 2)
    assert node.exclusive is True
    assert node.contents[0].contents[0].type == "core"
    assert job.duration_seconds == 91
    assert job.original == FLUX
    assert job.constraint.accepts(frozenset(), "n2", 0)
    assert not job.constraint.accepts(frozenset(("slow",)), "n2", 0)
    assert not job.constraint.accepts(frozenset(), "n4", 0)


WRONG = {
    "a count of zero": (flux("count: 4", "count: 0"), "line 11"),
    "a negative count": (flux("count: 4", "count: -4"), "line 11"),
    "half a count": (flux("count: 4", "count: 4.5"), "line 11"),
    "true as a count": (flux("count: 4", "count: true"), "line 11"),
    "a count beyond all": (flux("count: 4", "count: 99999999999999999999"), "line 11"),
    "max below min": (flux("max: 8", "max: 1"), "line 4"),
    "max without the rest": (flux(', operator: "*", operand: 2', ""), "all of"),
    "an unknown operator": (flux('"*"', '"/"'), "line 4"),
    "an unknown key": (flux("exclusive: true", "exklusive: true"), "line 5"),
    "a key twice": (flux("exclusive: true", "type: rack"), "twice"),
    "yes as exclusive": (flux("exclusive: true", "exclusive: yes"), "line 5"),
    "a slot without label": (flux("        label: task\n", ""), "label"),
    "a slot without contents": (
        flux("        with:\n          - {type: core, count: 4}\n", ""),
        "with",
    ),
    "a negative duration": (flux("90.5", "-1"), "line 16"),
    "a duration without end": (flux("90.5", ".inf"), "line 16"),
    "a duration that is no number": (flux("90.5", "soon"), "line 16"),
    "no resources": (flux("resources:", "things:"), "things"),
    "version zero": (flux("9999", "0"), "line 1"),
    "version 10000": (flux("9999", "10000"), "line 1"),
    "an unknown constraint": (flux("not:", "nor:"), "nor"),
    "a host list that ends early": (flux("n[0-3]", "n[3-0]"), "hostlist"),
    "two constraints in one": (
        flux("{and: [", "{ranks: ['1'], and: ["),
        "one operator",
    ),
    "a property that is a number": (flux('["slow"]', "[7]"), "string"),
    "per_slot of zero": (flux("per_slot: 1", "per_slot: 0"), "line 13"),
    "a spec that is a list": ("- 1", "mapping"),
    "nothing": ("", "mapping"),
    "no YAML": ("a: [", "YAML"),
    "a tag": (flux("exclusive: true", "exclusive: !!python/name:os.system x"), "tag"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_flux_spec_that_is_wrong_is_refused_with_its_place(case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(SpecError) as refused:
        read_spec(text, name="job.yaml")
    assert said in str(refused.value)


def test_aliases_cannot_blow_up() -> None:
    layers = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9))
    with pytest.raises(SpecError):
        read_spec(f"x0: &x0 [1]\n{layers}\n{FLUX}")


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(SpecError, match="deep"):
        read_spec("resources: " + "[" * 5000)


RAINBOW = """\
version: 1
resources:
  work:
    type: node
    replicas: 2
    requires:
      - {name: spack, field: version, min: "0.5.1", max: "0.5.5"}
      - {name: io, match: shm}
    with:
      - {type: core, count: 2}
tasks:
  - {command: [ior], resources: work}
"""


def test_a_rainbow_spec_asks_for_subsystems() -> None:
    job = read_spec(RAINBOW)
    (node,) = job.resources
    assert job.skips_levels
    assert node.count == Count(2, 2)
    assert node.requires == (
        Require("spack", "version", versions=">=0.5.1,<=0.5.5"),
        Require("io", "type", match="shm"),
    )
    assert job.tasks == (("ior",),)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("replicas: 2", "replicas: 0", "line 5"),
        ("replicas: 2", "replicas: 2\n    count: 1", "give one"),
        ("resources: work", "resources: play", "'play'"),
        ('min: "0.5.1"', 'min: "latest"', "no version"),
        ("name: io, ", "", "'name'"),
        ("version: 1", "version: 2", "version 1"),
        ("type: node", "kind: node", "kind"),
    ],
)
def test_a_rainbow_spec_that_is_wrong_is_refused(old: str, new: str, said: str) -> None:
    assert old in RAINBOW
    with pytest.raises(SpecError) as refused:
        read_spec(RAINBOW.replace(old, new), name="job.yaml")
    assert said in str(refused.value)


MYCEL = """\
nodes = "2-4"
tasks_per_node = 2
exclusive = true
time_limit = 600

[task]
command = ["./train"]
requirements = { cpu_cores = 3.5, min_memory = "8GB", gpus = 1, labels = { zone = "eu" } }

[compatibility]
"mpi.variant" = "mpich"
"mpi.version" = ">=4.1,<5"

[compatibility.annotations]
"org.supercontainers.os.name" = "debian"
"org.opencontainers.image.title" = "not ours"
"""


def test_a_whole_manifest_of_an_image_gives_its_annotations() -> None:
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": "sha256:0", "size": 7},
        "layers": [],
        "annotations": {
            "org.supercontainers.glibc.version": ">=2.36",
            "org.supercontainers.mpi.variant": "mpich",
            "org.opencontainers.image.title": "not ours",
        },
    }
    text = json.dumps({"task": {"image": "lammps", "compatibility": manifest}})
    (node,) = read_spec(text).resources
    assert {(one.subsystem, one.field, one.match, one.versions) for one in node.requires} == {
        ("compatibility", "glibc.version", "", ">=2.36"),
        ("compatibility", "mpi.variant", "mpich", ""),
    }
    wrongs: tuple[object, ...] = (
        [],
        {"annotations": 7},
        {"a": []},
        {"a": ">=x"},
        {"compatibilities": [{}]},
    )
    for wrong in wrongs:
        with pytest.raises(SpecError, match="compatibility"):
            read_spec(json.dumps({"task": {"compatibility": wrong}}))


def test_mycels_own_format_asks_for_several_nodes() -> None:
    job = read_spec(MYCEL, name="job.toml")
    (node,) = job.resources
    (slot,) = node.contents
    assert (node.type, node.count, node.exclusive) == ("node", Count(2, 4), True)
    assert slot.count == Count(2, 2)
    assert {one.type: one.count.minimum for one in slot.contents} == {
        "core": 4,
        "gpu": 1,
        "memory": 8000,
    }
    assert job.duration_seconds == 600
    assert job.constraint.accepts(frozenset(("zone=eu",)), "", 0)
    assert not job.constraint.accepts(frozenset(), "", 0)
    assert {(one.field, one.match, one.versions) for one in node.requires} == {
        ("mpi.variant", "mpich", ""),
        ("mpi.version", "", ">=4.1,<5"),
        ("os.name", "debian", ""),
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"2-4"', "0", "nodes"),
        ('"2-4"', '"4-2"', "less than min"),
        ('"8GB"', '"much"', "min_memory"),
        ("cpu_cores = 3.5", "cpu_cores = -1", "cpu_cores"),
        ("exclusive = true", 'exclusive = "maybe"', "exclusive"),
        ("time_limit = 600", "time_limt = 600", "time_limt"),
        ('">=4.1,<5"', '">=new"', "version range"),
    ],
)
def test_mycels_own_format_is_checked(old: str, new: str, said: str) -> None:
    assert old in MYCEL
    with pytest.raises(SpecError) as refused:
        read_spec(MYCEL.replace(old, new), name="job.toml")
    assert said in str(refused.value)


@given(st.text(max_size=200))
def test_no_text_makes_a_reader_crash(text: str) -> None:
    for name in ("job.yaml", "job.toml"):
        try:
            read_spec(text, name=name)
        except FederationError:
            continue


@given(
    st.sampled_from("+*^"),
    st.integers(1, 20),
    st.integers(0, 300),
    st.integers(1, 5),
    st.integers(0, 400),
)
def test_the_largest_count_is_the_last_of_all(
    operator: str, low: int, more: int, operand: int, available: int
) -> None:
    try:
        count = ranged(low, low + more, operator, operand)
    except SpecError:
        return
    assert count.largest(available) == max(acceptable(count, available), default=0)


def test_counts_have_short_forms() -> None:
    assert parse_count("4") == Count(4, 4)
    assert parse_count("2-8") == Count(2, 8)
    assert parse_count("[2+]") == Count(2, UNLIMITED)
    assert parse_count("2-64:2:*") == Count(2, 64, "*", 2)
    assert parse_count("1,2,4-5").values == (1, 2, 4, 5)
    for wrong in ("", "a", "4-2", "0-3", "1,,2", "-1", "2-", "1-2:0", "9" * 40, "0,1"):
        with pytest.raises(SpecError):
            parse_count(wrong)


def test_sets_of_hosts_and_ranks() -> None:
    assert parse_idset("0-2,7") == {0, 1, 2, 7}
    assert parse_hostlist("web,n[08-10,2]-ib") == {"web", "n08-ib", "n09-ib", "n10-ib", "n2-ib"}
    for wrong in ("3-1", "a", "0-99999999999", ""):
        with pytest.raises(ValueError, match=r"."):
            parse_idset(wrong)
    for wrong in ("n[", "n[0-9999999]", "", "n[a]"):
        with pytest.raises(ValueError, match=r"."):
            parse_hostlist(wrong)


def test_empty_constraints_mean_what_rfc_31_says() -> None:
    def accepts(value: object) -> bool:
        return parse_constraint(value, "").accepts(frozenset(), "n", 0)

    assert accepts({})
    assert accepts({"and": []})
    assert accepts({"or": []})
    assert not accepts({"not": []})


@needs_data
@pytest.mark.parametrize("path", sorted((DATA / "jobspecs").glob("*.yaml")), ids=lambda p: p.stem)
def test_specs_of_others_are_read(path: object) -> None:
    assert read_spec_file(path).resources  # type: ignore[arg-type]
