"""Files by what is in them: named by digest, kept once, verified whenever they arrive."""
