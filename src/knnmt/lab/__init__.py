"""What measures the product, apart from it."""
