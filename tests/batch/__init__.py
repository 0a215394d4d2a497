"""Batch systems, the agent in front of one, and pilot workers inside one."""
