"""Text around the model: inline codes, protected spans, sentences, white space. Knows nothing of models."""
