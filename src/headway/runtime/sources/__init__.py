"""Sources: an application's own tables as the truth from which a store can be rebuilt."""
