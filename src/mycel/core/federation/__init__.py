"""Clusters as providers: what one is, what fits it, and which one to choose.

    job spec ─ request tree ─┐
                             ├─ matcher ─ verdict, with level and reason ─ selection
    graph ─ kinds ───────────┘     │
                               calendar (allocate, reserve, cancel)

Everything here is data and arithmetic. `mycel.federation` reads and writes the files.
"""
