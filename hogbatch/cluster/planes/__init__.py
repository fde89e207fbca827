"""Ways to write to the memory of other servers, a `base.Plane` each."""
