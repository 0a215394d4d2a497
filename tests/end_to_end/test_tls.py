"""The API by TLS: clients of this machine and of others, new certificates, and the warning."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mycel.cli.main import main
from mycel.client import Client
from mycel.client.errors import NotTrusted
from tests.attacks.certificates import make_certificate, needs_openssl

from .conftest import SwarmMaker
from .swarm import Swarm, eventually


def settings(pair: tuple[Path, Path]) -> str:
    return f'[scheduler.api]\ntls_cert = "{pair[0]}"\ntls_key = "{pair[1]}"\n'


def shown(swarm: Swarm) -> str:
    address = urlsplit(swarm.api)
    return ssl.get_server_certificate((address.hostname or "", address.port or 0))


@needs_openssl
def test_the_api_speaks_tls_and_takes_new_certificates_over(
    make_swarm: SwarmMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_certificate(tmp_path / "one")
    swarm = make_swarm(settings(pair))
    monkeypatch.setenv("MYCEL_CA_FILE", str(pair[0]))  # the test's own client
    swarm.up(workers=1)
    monkeypatch.delenv("MYCEL_CA_FILE")
    assert swarm.api.startswith("https://")
    done = swarm.mycel("run", "--", "echo", "hello")
    assert (done.code, done.out) == (0, "hello\n"), done
    # From another machine: only with a file of whoever signed it.
    with pytest.raises(NotTrusted, match="MYCEL_CA_FILE"):
        Client(swarm.api, swarm.token).workers()
    assert Client(swarm.api, swarm.token, ca_file=pair[0]).workers()
    monkeypatch.setenv("MYCEL_CA_FILE", str(pair[0]))
    assert Client(swarm.api, swarm.token).workers()
    first = shown(swarm)
    other = make_certificate(tmp_path / "two")
    configuration = swarm.home / "mycel.toml"
    before = configuration.read_text()
    configuration.write_text(before.replace(str(pair[1]), str(other[1])))
    refused = swarm.mycel("reload")
    assert refused.code == 1
    assert "keeps the certificate it had" in refused.out
    assert shown(swarm) == first
    configuration.write_text(
        before.replace(str(pair[1]), str(other[1])).replace(str(pair[0]), str(other[0]))
    )
    assert swarm.mycel("reload").code == 0
    assert shown(swarm) == other[0].read_text()
    third = make_certificate(tmp_path / "three")
    os.replace(third[1], other[1])  # noqa: PTH105
    os.replace(third[0], other[0])  # noqa: PTH105
    eventually(lambda: shown(swarm) == other[0].read_text(), "the changed files are read again")
    assert swarm.mycel("run", "--", "echo", "again").out == "again\n"


def test_an_api_for_other_machines_without_tls_warns(
    make_swarm: SwarmMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    swarm = make_swarm('[scheduler.api]\nbind_address = "0.0.0.0:0"\n')
    started = swarm.mycel("up", "--detach", "--workers", "1", "--port", "0")
    try:
        assert started.code == 0, started
        assert "without TLS" in started.err
        log = swarm.home / "scheduler" / "log.jsonl"
        eventually(lambda: '"risk"' in log.read_text(), "the log says so too")
        assert main(["config", "check", str(swarm.home / "mycel.toml")]) == 0
        assert "without TLS" in capsys.readouterr().out
    finally:
        swarm.mycel("down")
