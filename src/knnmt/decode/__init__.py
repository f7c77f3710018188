"""Decoding: beam (greedy and beam search), cache (self-attention keys and values), repetition (loop detection)."""
