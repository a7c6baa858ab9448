"""Small programs after public reports of compilers that lost a mutation, a gradient or a state."""
