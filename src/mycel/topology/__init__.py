"""Networks of servers and switches: builders, routes, overlays and failures.

graph       nodes, links, what has failed
leaf_spine  the builder
spec        a topology as TOML
routes      Dijkstra, ECMP with hashing, link loads; recomputes only what changed
overlays    who gossips with whom
picture     SVG
"""
