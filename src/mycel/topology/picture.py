"""A topology as SVG: spines above, leaves below them, servers below their leaves.

Links are coloured by their load, if one is given: from grey over orange to red.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from .network_graph import Kind, Topology

WIDTH: Final = 1200
ROWS: Final = {Kind.SPINE: 60, Kind.SWITCH: 150, Kind.LEAF: 240, Kind.SERVER: 380}
COLOURS: Final = {
    Kind.SPINE: "#6a4c93",
    Kind.SWITCH: "#8d99ae",
    Kind.LEAF: "#1982c4",
    Kind.SERVER: "#8ac926",
}
NODES_MAX: Final = 2000
"""More than this is a grey block: the picture leaves servers out and says so."""


def picture(topology: Topology, load_by_link: Mapping[int, float] | None = None) -> str:
    """`load_by_link` from 0 to 1 by link number."""
    shown = [
        number
        for number, node in enumerate(topology.nodes)
        if len(topology.nodes) <= NODES_MAX or node.kind is not Kind.SERVER
    ]
    places = _places(topology, shown)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 440"'
    parts = [f'{opening} font-family="sans-serif" font-size="11">']
    for number, link in enumerate(topology.links):
        if link.first in places and link.second in places:
            (x1, y1), (x2, y2) = places[link.first], places[link.second]
            load = None if load_by_link is None else load_by_link.get(number, 0.0)
            parts.append(f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" {_stroke(load)}/>')
    names_fit = len(shown) <= 60
    for number, (x, y) in places.items():
        node = topology.nodes[number]
        colour = "#d62828" if number in topology.failed_nodes else COLOURS[node.kind]
        name = escape(node.name)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y}" r="{7 if names_fit else 3}" fill="{colour}">'
            f"<title>{name}</title></circle>"
        )
        if names_fit:
            parts.append(f'<text x="{x:.1f}" y="{y + 22}" text-anchor="middle">{name}</text>')
    hidden = len(topology.nodes) - len(shown)
    if hidden:
        parts.append(f'<text x="10" y="425">{hidden} servers are not drawn</text>')
    return "".join([*parts, "</svg>"])


def _places(topology: Topology, shown: list[int]) -> dict[int, tuple[float, int]]:
    places: dict[int, tuple[float, int]] = {}
    for kind, y in ROWS.items():
        row = [number for number in shown if topology.nodes[number].kind is kind]
        for place, number in enumerate(row):
            places[number] = ((place + 0.5) * WIDTH / len(row), y)
    return places


def _stroke(load: float | None) -> str:
    if load is None or load <= 0:
        return 'stroke="#bbb" stroke-width="1"'
    share = min(1.0, load)
    red, green = 230, int(160 * (1 - share))
    return f'stroke="rgb({red},{green},40)" stroke-width="{1 + 4 * share:.1f}"'
