"""Batch systems behind one interface, for the agent of a cluster and for pilot workers."""
