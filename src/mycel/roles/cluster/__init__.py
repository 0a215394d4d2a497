"""The agent of a cluster, with a folder as its origin. It takes no part in a swarm yet."""
