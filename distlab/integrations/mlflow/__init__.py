"""MLflow on distlab: a logger. MLflow is imported when one is made."""
