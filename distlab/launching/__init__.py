"""Starting the processes of a cluster on this machine, watching them, and ending them all."""
