"""Reading tables with PyArrow, which only these modules import, and only when they read a file."""
