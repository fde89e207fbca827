"""`hogbatch report`: one HTML file about one or several runs.

figure        what a figure shows: curves, bars or lanes, as numbers
run_figures   the figures of one run, from its RunState
comparison    the figures and tables of several runs
tables        the tables of one run
reported      a run as its report shows it
ticks         positions and texts on axes
markup        elements of HTML and SVG, with everything escaped
plots, bars   figures as SVG
page          the HTML page
evaluation    computes the predictions on the test set, if that is cheap
command       reads run directories and writes the file
"""
