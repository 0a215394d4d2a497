"""`mycel demo`. The tasks import this package too: nothing heavy here."""

from __future__ import annotations

import importlib

DEMOS = {"sweep": "failover", "embed": "embed", "llm": "llm"}
"""By name, the module that shows it; the first is meant if none is named."""


def main(given: list[str]) -> int:
    name, rest = (given[0], given[1:]) if given and given[0] in DEMOS else ("sweep", given)
    return int(importlib.import_module(f"mycel.demo.{DEMOS[name]}").main(rest))
