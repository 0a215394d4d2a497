from __future__ import annotations

import pytest

from mycel.core.model.images import is_image_name

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "name",
    [
        "busybox",
        "docker:24",
        "docker.io/pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime",
        "localhost/mycel-test:latest",
        "localhost:5000/lab/train",
        "registry.example:443/lab/sub__project/train:v1.0_2",
        f"ghcr.io/lab/train@{DIGEST}",
        f"ghcr.io/lab/train:v1@{DIGEST}",
        DIGEST,
        "9950a9e860da",
    ],
)
def test_what_registries_and_engines_call_an_image_is_a_name(name: str) -> None:
    assert is_image_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "--privileged",
        "two words",
        "/srv/image",
        "../image",
        "registry.example/lab/../other",
        "image\n",
        "docker-archive:/srv/image.tar",
        "docker-archive:/srv/image.tar:lab/train:v1",
        "oci-archive:/srv/image.tar",
        "oci:image",
        "oci:/srv/image:v1",
        "dir:/srv/image",
        "dir:image",
        "docker-daemon:lab/train:v1",
        "containers-storage:lab",
        "docker://registry.example/lab/train",
    ],
)
def test_places_on_the_workers_own_disk_are_no_names(name: str) -> None:
    assert not is_image_name(name)
