"""Homes: run here or forward. Mycel's own policy.

Every server has one home scheduler, which alone places on it. A scheduler starts what its own
servers have room for. It sends the rest in shares to four homes, the tasks with the request:

    origin ── request: tasks ──▶ home       starts what it can, notes the rest as wants
    origin ◀── answer: the rest ── home
    origin ── ask: how many ──▶ next home   one more home at a time, eight in all
    origin ◀── offer: held places ── home   at once for an ask, later when room frees
    origin ── fill: tasks ──▶ home          an empty fill gives the places back
    origin ── withdraw ──▶ homes            nothing waits any more

    homes_policy      puts the parts together; failures of servers and schedulers
    homes_options     the settings, and which home a server has
    origin            the scheduler that accepted a job
    home              the scheduler that places on a server
    waiting_line      who waits, in order
    beliefs           what a scheduler thinks that homes have free
    scheduler_links   messages between schedulers, and what a cold link costs
    fetch_ahead       tasks sent to a server before it has room
    gangs             tasks that start all at once
    gpu_quotes        what a placement would cost in fragmentation

At a home its own waiting tasks and the wants of others stand in one line, by priority, and by when
it first heard of them. A want is not for one task: the origin fills an offer with whatever has
waited longest, so each waiting task always has a want somewhere. Wants do not expire here.
"""
