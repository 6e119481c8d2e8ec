"""The page of a run, without a server: charts, facts, sections, scripts and styles."""
