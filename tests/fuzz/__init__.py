"""Hostile peers: strangers, thieves of tokens, and members that lie. `run.py` has the long form."""
