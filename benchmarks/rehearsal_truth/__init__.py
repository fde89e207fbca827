"""Do rehearsals need the rows and seconds that real runs need? See __main__.py."""
