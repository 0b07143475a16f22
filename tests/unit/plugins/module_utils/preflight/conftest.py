from preflight_tree import tree

__all__ = ["tree"]
