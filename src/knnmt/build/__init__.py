"""How a store is made."""
