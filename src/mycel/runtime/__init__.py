"""What makes a machine a node: the queue of effects, the turn, the clock."""
