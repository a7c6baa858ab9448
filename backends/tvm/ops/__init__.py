"""The rows, by family. Importing this package fills the table."""
