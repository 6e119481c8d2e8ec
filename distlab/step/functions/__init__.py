"""The identity of a replica function, and the arrays and state it closes over."""
