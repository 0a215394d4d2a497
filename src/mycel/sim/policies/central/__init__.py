"""One scheduler that knows every server: its queue, and how it chooses among servers."""
