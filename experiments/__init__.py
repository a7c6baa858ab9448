"""Questions put to the bridge, one folder each, and what they share: models and measurements."""
