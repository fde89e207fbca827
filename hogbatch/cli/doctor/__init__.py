"""`hogbatch doctor`: `command` reads the machine and the installation, `checks` decides."""
