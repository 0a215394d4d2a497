"""Graphs made of what batch systems say about their nodes."""
