"""Replay of a recorded run on one core.

command     `hogbatch replay`
recorded    the recorded run: its settings, data, records and evaluations
schedule    the order in which the recorded reads and writes of the model happened
stages      when the layers of a batch were computed
player      repeats them
results     what a replay reports
findings    the first update after which the model was not finite, or its loss had jumped
"""
