"""What each role is assembled from.

`links`, `joining`, `scheduling`, `working` and `gating` are the roles over any swarm, clock,
store and driver, so that the simulator runs the same code; `gateway`, `scheduler` and `worker`
are the programs that give them the real ones.
"""
