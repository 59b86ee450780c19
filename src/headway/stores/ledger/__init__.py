"""The operations of the contract, implemented once over tables of rows that each store supplies."""
