"""The real coordinator and real policies, with everything around them simulated from a seed."""
