"""Serving: TF Serving's REST interface over an export."""
