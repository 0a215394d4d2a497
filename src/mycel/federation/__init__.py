"""Readers and stores for clusters: graphs, job specs, auth files, batch systems' answers.

`mycel.core.federation` decides; nothing here does.
"""
