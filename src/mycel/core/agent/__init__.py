"""The agent of a cluster: jobs of the swarm go through the cluster's own batch system."""
