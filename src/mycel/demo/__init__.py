"""`mycel demo`. The tasks import this package too: nothing heavy here."""

from __future__ import annotations


def main(given: list[str]) -> int:
    from .show import main as show

    return show(given)
