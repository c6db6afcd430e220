"""How a table stands: what it has recorded, what is new for it, why it cannot be worked on."""
