"""Plans of datasets: elements by position, state and specs."""
