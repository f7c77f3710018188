"""The translation model: checkpoint (load), transformer (the network), tokenizer, represent (states of a corpus)."""
