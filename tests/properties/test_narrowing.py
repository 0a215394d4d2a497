"""Whatever is appended to a token, it never allows more than before."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from mycel._native import identity
from mycel.access.tokens import Statement, bind, inspect, issue, narrow
from mycel.core.rights import ACTIONS, CAPS, Rights
from mycel.swarm.token_rights import ROLE_BITS

OWNER = os.urandom(32)
PUBLIC = identity(OWNER)[0]
PEER = identity(os.urandom(32))[1]

names = st.sampled_from(["alice", "alice/ci", "alice/ci/x", "bob", "ali"])
statements = st.builds(
    Statement,
    user=st.none() | names,
    roles=st.none() | st.lists(st.sampled_from(list(ROLE_BITS)), unique=True).map(tuple),
    actions=st.none() | st.lists(st.sampled_from(ACTIONS), unique=True).map(tuple),
    priority_max=st.none() | st.integers(-100, 100),
    caps=st.dictionaries(st.sampled_from(CAPS), st.integers(0, 1000).map(float), max_size=3),
    cluster=st.none() | st.sampled_from(["one", "two"]),
    expires_at=st.none() | st.integers(1_000, 4_000_000_000).map(float),
)


def is_within(narrowed: Rights, before: Rights) -> bool:
    """Whether the first allows nothing that the second does not."""

    def no_more(mine: float | None, theirs: float | None) -> bool:
        return theirs is None or (mine is not None and mine <= theirs)

    caps, caps_before = dict(narrowed.caps), dict(before.caps)
    own = narrowed.user in ("", before.user) or narrowed.user.startswith(f"{before.user}/")
    return (
        own
        and narrowed.swarm == before.swarm
        and narrowed.roles <= before.roles
        and narrowed.actions <= before.actions
        and no_more(narrowed.priority_max, before.priority_max)
        and no_more(narrowed.expires_at, before.expires_at)
        and all(no_more(caps.get(name), most) for name, most in caps_before.items())
        and set(before.revocation_ids) <= set(narrowed.revocation_ids)
    )


@given(grant=statements, blocks=st.lists(statements, max_size=4), bound=st.booleans())
def test_narrowing_never_widens(grant: Statement, blocks: list[Statement], bound: bool) -> None:
    token = issue(OWNER, "test", grant)
    if bound:
        token = bind(PUBLIC, token, PEER)
    before = inspect(PUBLIC, token, PEER)
    for block in blocks:
        token = narrow(PUBLIC, token, block)
        after = inspect(PUBLIC, token, PEER)
        assert is_within(after, before)
        before = after


@given(grant=statements, limits=statements)
def test_narrowing_twice_by_the_same_changes_nothing_more(
    grant: Statement, limits: Statement
) -> None:
    once = narrow(PUBLIC, issue(OWNER, "test", grant), limits)
    first, second = inspect(PUBLIC, once), inspect(PUBLIC, narrow(PUBLIC, once, limits))
    fields = ("user", "roles", "actions", "priority_max", "caps", "cluster", "expires_at")
    assert [getattr(first, name) for name in fields] == [getattr(second, name) for name in fields]
