"""The dead end of the in-place optimizer: what a whole training step costs as one program, and whether it is right."""
