"""How counts, units, sizes in bytes and markup are written, wherever they are shown."""
