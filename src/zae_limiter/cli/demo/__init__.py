"""Several processes share one store, and their own logs show that the limits hold."""
