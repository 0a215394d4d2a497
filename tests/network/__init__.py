"""Swarms across network namespaces: LANs behind NAT, partitions, loss. Needs root."""
