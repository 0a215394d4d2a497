"""How a task is confined: bubblewrap, Landlock, seccomp, control groups, process limits.

    detection         the worker, once: what this machine can do        ─▶ SandboxPlan
    run_confinement   each run: its network, limits, paths and devices  ─▶ RunConfinement
    launch            the spawn helper: arguments before the command, a control group, ids
    bubblewrap        what a task sees of the machine
    etc_folder        what it sees of /etc
    landlock          what it may do with what it sees
    seccomp_filter    which system calls it may make
    cgroups           control groups, version 1 and 2; `cgroup_paths` says where they may be
    soft_limits       limits that nothing else enforces

A task's own process never has more than it was given: ids are dropped for good inside, before
its first instruction, and its environment reaches no program that still has them.
"""
