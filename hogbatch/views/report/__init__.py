"""`hogbatch report`: one HTML file about one or several runs, with figures drawn by Matplotlib."""
