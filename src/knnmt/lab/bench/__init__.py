"""What is measured, and how: the time and memory of the systems beside base MT, and how they grow with the store."""
