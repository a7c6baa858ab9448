"""Whether overloads compute what torch's do: real calls of them, variants that bring trouble, and eager's word."""
