"""A data centre in virtual time, for studying how work is scheduled.

model       jobs, tasks, servers with several resources
network     delays and transfers, constant or along a topology's routes
engine      the reference engine: plain Python, every policy, integer nanoseconds
policy      what a policy is; `policies/` has one small module for each
fast        the same results for the slot policies, compiled by numba
workloads   synthetic arrivals; `traces/` reads recorded ones
scenario    a run as TOML
results     records, summaries and their files; `report` is the HTML page
"""
