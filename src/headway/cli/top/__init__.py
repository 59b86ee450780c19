"""`headway top`: what it looks at, how that is told, and the screen in a terminal."""
