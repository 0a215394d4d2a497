"""What the command line, the demonstrations and the benchmarks share: errors that end a command,
tables, and what may reach a terminal."""
