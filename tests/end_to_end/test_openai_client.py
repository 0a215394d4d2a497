"""OpenAI's own client for Python, as it is, against a scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from .conftest import SwarmMaker
from .swarm import eventually
from .test_models import Servers, worker
from .test_python_models import loaded, served


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.stop()


def test_the_client_of_openai_works_as_it_is(make_swarm: SwarmMaker, servers: Servers) -> None:
    second = loaded("embedder", "embedding").partition("\n[worker")[2].replace("parrot", "vectors")
    swarm = make_swarm(f"{worker('parrot', servers.start('one'))}[worker{second}")
    swarm.up(workers=1)
    with OpenAI(base_url=f"{swarm.api}/v1", api_key=swarm.token, max_retries=0) as client:
        eventually(lambda: served(swarm) == ["parrot", "vectors"], "both are offered")
        assert [model.id for model in client.models.list()] == ["parrot", "vectors"]
        said = client.chat.completions.create(
            model="parrot", messages=[{"role": "user", "content": "hello"}]
        )
        assert said.choices[0].message.content == "one says hello"
        stream = client.chat.completions.create(
            model="parrot", messages=[{"role": "user", "content": "hello there"}], stream=True
        )
        words = [event.choices[0].delta.content for event in stream]
        assert words[:4] == ["one ", "hello ", "there ", "one "]
        assert len(words) == 40
        completed = client.completions.create(model="parrot", prompt="once upon")
        assert completed.choices[0].text == "one says once upon"
        vectors = client.embeddings.create(
            model="vectors", input=["a", "bcd"], encoding_format="float"
        )
        assert [one.embedding for one in vectors.data] == [[1.0], [3.0]]
        with pytest.raises(openai.NotFoundError, match="no known worker serves"):
            client.completions.create(model="nobody", prompt="hello")
        with pytest.raises(openai.BadRequestError, match="short and stout"):
            client.completions.create(model="parrot", prompt="teapot")
    with (
        OpenAI(base_url=f"{swarm.api}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_a_broken_stream_raises_in_the_client(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    with OpenAI(base_url=f"{swarm.api}/v1", api_key=swarm.token, max_retries=0) as client:
        stream = client.chat.completions.create(
            model="parrot", messages=[{"role": "user", "content": "slow"}], stream=True
        )
        next(iter(stream))
        swarm.kill("worker-1")
        with pytest.raises(openai.APIError, match="lost in the middle"):
            list(stream)
