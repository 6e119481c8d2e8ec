"""What the devices do: busy times, memory, captured profiles, compiled programs."""
