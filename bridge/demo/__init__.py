"""The demonstration: two real trainings through eager and through the bridge, timed, compared and reported."""
