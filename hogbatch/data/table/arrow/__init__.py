"""Reading tables with PyArrow, an extra that only these modules import."""
