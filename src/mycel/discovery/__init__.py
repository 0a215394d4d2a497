"""Finding workers without asking anybody in particular.

`keys` says under which keys of the DHT a worker is found, `records` what it says of itself
there; `publishing` is the worker's side, `searching` the scheduler's.
"""
