"""How tasks run. `interface` is what every driver promises, `registry` finds drivers by name."""
