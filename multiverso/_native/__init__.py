"""The C library: its functions, and the conversion of Python values into what they take."""
