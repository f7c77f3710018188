"""Search for the best translation: beam (greedy and beam search), cache (what it keeps between steps), repetition (loops)."""
