"""From a recipe to a scored run."""
