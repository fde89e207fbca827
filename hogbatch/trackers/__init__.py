"""Experiment trackers (`--log`): the values of each evaluation, in the tools that compare runs.

names               what an evaluation and a run give to trackers, under which names
base                the interface of a tracker
choose              the trackers that a run asks for: packages, files, creation
tracking            the observer that gives what a run reports to its trackers
delivery            a thread per tracker, so that training never waits for one
remote, child       a tracker in a process of its own: this process's side, and its own side
csv_file            metrics.csv
tensorboard_events  event files of TensorBoard
mlflow_run          a run of MLflow
wandb_run           a run of Weights & Biases
"""
