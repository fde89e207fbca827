"""`hogbatch profile`: measures the machine it runs on and writes its description."""
