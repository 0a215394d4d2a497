"""Ray, by its job submission API. `ray_system` is the way in."""
