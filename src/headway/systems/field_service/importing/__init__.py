"""Imports of CSV: read in batches, told row by row what is wrong, written whole or in part."""
