"""The C library: its declarations, calls and errors, and the conversion of Python arguments."""
