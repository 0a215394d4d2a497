"""Slurm, by its commands. `slurm_system` is the way in."""
