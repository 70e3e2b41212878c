"""The main job on real input: all flights of 2013 through a broker that is killed on the way (`make demo`)."""
