"""The verbs of the contract, told once over tables of rows; memory and SQLite bring the tables."""
