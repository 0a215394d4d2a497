"""Clusters that have registered: their records, graphs and secrets."""
