"""What runs in a process that is measured. It runs in the environment of whoever is measured,
so it imports the standard library and nothing else."""
