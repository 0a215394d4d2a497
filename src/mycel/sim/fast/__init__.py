"""The fast engine: slot policies as struct of arrays, compiled by numba and cached.

    events    the heap and the random numbers
    central   one queue
    queues    random and power of d
    sparrow   late binding
    homes     run here or forward
    run       picks the kernel; the only module that others import

Each kernel handles the same events in the same order as its policy does in the reference engine,
so starts, ends, servers and messages are identical. `tests/sim/test_fast.py` compares them.
"""
