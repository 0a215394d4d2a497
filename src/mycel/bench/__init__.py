"""`mycel bench quick`. The tasks import this package too: nothing heavy here."""
