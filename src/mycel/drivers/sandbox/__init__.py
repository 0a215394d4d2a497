"""What holds a task: a sandbox by bubblewrap and Landlock, control groups, limits of the process.

    starting     the worker, once: what this machine can do, and what is to be done    ─▶ Confine
    holding      for each run: the network, limits, paths and devices that it has      ─▶ Hold
    launching    the spawn helper: a Hold becomes words before the command, a group, ids
    bubblewrap   what a task sees of the machine
    etc_folder   what it sees of /etc
    landlock     what it may do with what it sees
    filter       which system calls it may make
    groups       control groups, version 1 and version 2; `group_places` where they may be
    keeping      limits that nobody else enforces

A task's own process never has more than it was given: ids are dropped for good inside, before
its first instruction, and its environment reaches no program that still has them.
"""
