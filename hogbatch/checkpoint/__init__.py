"""What a run saves: the model file that is predicted with, and checkpoints to go on from."""
