"""Clusters register with a running scheduler, and the commands of its home know them."""

from __future__ import annotations

import json

from .rest import call
from .swarm import Swarm

GRAPH = {
    "graph": {
        "nodes": [
            {"id": "0", "metadata": {"type": "cluster", "name": "c"}},
            {"id": "1", "metadata": {"type": "node", "name": "n1"}},
            *({"id": f"c{n}", "metadata": {"type": "core", "name": f"core{n}"}} for n in range(4)),
        ],
        "edges": [
            {"source": "0", "target": "1"},
            *({"source": "1", "target": f"c{n}"} for n in range(4)),
        ],
    }
}


def test_a_cluster_registers_over_rest_and_is_chosen_by_a_command(swarm: Swarm) -> None:
    """The scheduler and the commands are different processes on one registry."""
    secret = swarm.mycel("cluster", "invite", "--json").json["registration_secret"]
    body = json.dumps({"name": "alpha", "graph": GRAPH, "state": {"cost_per_node_hour": 2}})
    answer = call(swarm, "POST", "/api/v1/clusters", body, token=secret)
    assert answer.status == 201, answer
    made = answer.json
    job = swarm.home.parent / "cluster-job.toml"
    job.write_text("nodes = 1\n[task]\nrequirements = { cpu_cores = 4 }\n", encoding="utf-8")
    chosen = swarm.mycel("cluster", "choose", str(job), "--select", "lowest-cost", "--json")
    assert chosen.json["cluster"] == "alpha", chosen
    state = json.dumps({"nodes_free": 0})
    path = "/api/v1/cluster/state?name=alpha"
    assert call(swarm, "PUT", path, state, token=made["secret"]).status == 200
    assert swarm.mycel("cluster", "state", "alpha", "--json").json["nodes_free"] == 0
    assert swarm.mycel("cluster", "rotate", "alpha", "--secret").code == 0
    assert call(swarm, "PUT", path, state, token=made["secret"]).status == 401
    assert swarm.mycel("cluster", "delete", "alpha").code == 0
    assert call(swarm, "GET", "/api/v1/clusters/alpha").status == 404
