"""`headway top`: what it reads, its text, and the screen in a terminal."""
