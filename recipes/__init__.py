"""The shipped recipes, one file each."""
