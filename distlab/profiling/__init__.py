"""The activity of the devices: busy times, memory, captured profiles."""
