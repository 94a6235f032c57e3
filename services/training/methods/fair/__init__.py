"""Methods that steer by class: weights, margins and radii of the weak ones."""
