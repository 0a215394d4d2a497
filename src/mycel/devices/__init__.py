"""What a machine has: cores and memory as its control group allows them, GPUs, software.

A library that is not there, a GPU that does not answer: both are normal, and mean "none".
"""
