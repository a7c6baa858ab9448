"""What the steps hand to one another."""
