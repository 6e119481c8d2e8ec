"""Who takes part in a run, and where: cluster descriptions and what reads them.

The public names are in `distlab.cluster_resolver`. Nothing here starts a
process or talks to one; a resolver only says what a cluster manager says.
"""
