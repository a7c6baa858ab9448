"""Frontends: what brings a graph in. Imported as `bridge.frontends` only."""

if __name__ == "frontends":
    raise ImportError("import bridge.frontends, not frontends: one module, one name")
