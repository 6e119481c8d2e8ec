"""Programs counted for meshes that are not here: memory, collectives and what does not divide."""
