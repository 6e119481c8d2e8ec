"""Variables: their kinds, their copies and where these are stored."""
