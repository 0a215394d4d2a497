"""A notebook, run by Jupyter's own client: its functions exist nowhere but in its kernel."""

from __future__ import annotations

from typing import Any

import pytest

from .swarm import Swarm

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

CONNECT = """
import mycel, numpy as np
client = mycel.Client({api!r}, {token!r})
scale = 3
"""
MAP = """
arrays = [np.full(1000, n) for n in range(1000)]
sums = [int(a.sum()) for a in mycel.progress(client.map(lambda a: a * scale, arrays), "scaled")]
assert sums == [3000 * n for n in range(1000)], sums[:3]
"""
SHOW = "future = client.submit(lambda: scale)\nfuture.result()\nfuture"
CHANGE = "scale = 4\nclient.run(lambda: scale)"


def test_a_lambda_over_a_thousand_arrays(swarm: Swarm) -> None:
    connect = CONNECT.format(api=swarm.client.api, token=swarm.token)
    cells = [nbformat.v4.new_code_cell(text) for text in (connect, MAP, SHOW, CHANGE)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    _, mapped, shown, changed = notebook.cells
    assert "scaled: 1,000 of 1,000" in _html(mapped)
    assert "&lt;Future &lt;lambda&gt; " in _html(shown)
    assert changed.outputs[-1]["data"]["text/plain"] == "4"


def _html(cell: Any) -> str:
    return "".join(one["data"].get("text/html", "") for one in cell.outputs if "data" in one)
