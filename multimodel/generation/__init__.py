"""Writing outputs, position by position."""
