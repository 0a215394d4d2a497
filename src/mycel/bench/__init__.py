"""`mycel bench`. The tasks import this package too: nothing heavy here."""
