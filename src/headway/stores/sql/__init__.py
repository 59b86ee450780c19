"""What the stores on SQL share: statements, a job's columns, and the tables that are alike."""
