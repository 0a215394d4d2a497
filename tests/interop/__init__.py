"""Other implementations of libp2p."""
