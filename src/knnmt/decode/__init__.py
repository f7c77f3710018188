"""Search for the best translation: beam (greedy and beam search), cache (kept between steps), repetition (loops)."""
