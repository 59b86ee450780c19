"""What the SQL stores share: statements, a job's columns, and tables with the same layout."""
