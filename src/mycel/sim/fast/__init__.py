"""The fast engine: slot policies as struct of arrays, compiled by numba and cached.

    event_heap        the heap, the random numbers, and how a function is compiled
    slot_run          the arrays that the kernels of one queue each share
    central_kernel    one queue
    queue_kernel      random and power of d
    sparrow_kernel    late binding
    homes_kernel      run here or forward, with homes_records, _room, _line, _origin
    fast_engine       picks the kernel; the only module that others import

Each kernel handles the same events in the same order as its policy does in the reference engine,
so starts, ends, servers and messages are identical. `tests/sim/test_fast.py` compares them.
"""
