"""The texts of counts, units, sizes in bytes and markup, the same wherever they are shown."""
