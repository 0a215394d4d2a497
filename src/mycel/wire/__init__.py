"""Messages as bytes: the codec and its limits."""
