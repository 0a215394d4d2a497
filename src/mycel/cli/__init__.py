"""The command line. `main` finds the command; each other module is one or a few of them."""
