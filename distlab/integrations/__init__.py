"""Other libraries on distlab, one a package; none is imported before its library is used."""
