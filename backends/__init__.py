"""Backends: what takes the nodes of a graph. Imported as `bridge.backends` only."""

if __name__ == "backends":
    raise ImportError("import bridge.backends, not backends: one module, one name")
