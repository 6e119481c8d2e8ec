"""The processes of a cluster: their description, and resolvers that read it.

The public names are in `distlab.cluster_resolver`. Nothing here starts or contacts
a process; a resolver only reports the cluster manager's description.
"""
