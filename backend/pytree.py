"""Flatten nested arguments and results (pytrees) into leaves and a structure.

Nodes are those of optree: tuples, lists, dicts, None, named tuples and registered classes. optree's own functions are
not called: they are C++ that releases the GIL, so the process aborts when the interpreter ends a daemon thread there.
Their structures do not distinguish 1 from True among the keys of dicts.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from .static_args import static_key

# A node's type, all else that distinguishes it, its children. Structures are hashable, and equal only if a program
# cannot distinguish the nodes.
Structure = tuple[Any, ...]
LEAF: Structure = ()
_NONE: Structure = (None, None, ())
_LEAVES = frozenset({np.ndarray, bool, int, float, complex})  # common types, which are never registered


def _find(kind: type) -> Any:
    """Return the entry of a class with optree. A process that has not imported optree (5 ms) has registered none."""
    registry = sys.modules.get("optree.registry")
    # The table behind `register_pytree_node.get`, which also calls C++.
    known = getattr(registry, "_NODETYPE_REGISTRY", None) or getattr(registry, "register_pytree_node", None)
    return None if known is None else known.get(kind)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Split a tree into its leaves, those of a dict in the order of its keys, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def unflatten(structure: Structure, leaves: Any) -> Any:
    """Build the tree of a structure from its leaves."""
    return _build(structure, iter(leaves))


def leaves_like(structure: Structure, tree: Any) -> list[Any] | None:
    """Flatten a tree in the order of a structure, whose dicts may have another order of keys; None if the nesting
    differs."""
    leaves, own = flatten(tree)
    if own == structure:
        return leaves
    if structure == LEAF or own == LEAF or structure[0] is not own[0]:
        return None
    kind, facts, children = structure
    members = [unflatten(child, part) for child, part in zip(own[2], _parts(own, leaves), strict=True)]
    if kind in (dict, OrderedDict, defaultdict):
        found = dict(zip(own[1][0], members, strict=True))
        if found.keys() != set(facts[0]):
            return None
        members = [found[key] for key in facts[0]]
    elif len(members) != len(children) or facts != own[1]:
        return None
    parts = [leaves_like(child, member) for child, member in zip(children, members, strict=True)]
    return None if None in parts else [leaf for part in parts for leaf in part or ()]


def _parts(structure: Structure, leaves: list[Any]) -> Iterator[list[Any]]:
    """Split leaves into those of each child."""
    begin = 0
    for child in structure[2]:
        end = begin + count_leaves(child)
        yield leaves[begin:end]
        begin = end


def shown(structure: Structure) -> str:
    """Format a structure with a star for each leaf."""
    return repr(unflatten(structure, [_Star()] * count_leaves(structure)))


class _Star:
    def __repr__(self) -> str:
        return "*"


def count_leaves(structure: Structure) -> int:
    return 1 if structure == LEAF else sum(map(count_leaves, structure[2]))


def paths(structure: Structure) -> Iterator[tuple[Any, ...]]:
    """Return the path of keys and positions to each leaf."""
    if structure == LEAF:
        yield ()
        return
    kind, facts, children = structure
    names = facts[0] if isinstance(facts, tuple) and facts[0] is not None else range(len(children))
    for name, child in zip(names, children, strict=True):
        for path in paths(child):
            yield (name, *path)


def _flatten(item: Any, leaves: list[Any]) -> Structure:
    kind = type(item)
    if kind in _LEAVES:
        leaves.append(item)
        return LEAF
    if item is None:
        return _NONE
    if kind is tuple or kind is list:
        return kind, None, tuple([_flatten(member, leaves) for member in item])
    if kind in (dict, OrderedDict, defaultdict):
        keys = tuple(item)
        # Keys such as 1 and True are equal, but a program can distinguish them.
        exact = None if all(type(key) is str for key in keys) else tuple(map(static_key, keys))
        facts = keys, exact, item.default_factory if kind is defaultdict else None
        return kind, facts, tuple([_flatten(member, leaves) for member in item.values()])
    if kind is deque:
        return kind, item.maxlen, tuple([_flatten(member, leaves) for member in item])
    entry = _find(kind)
    if entry is None or entry.type is not kind:
        is_named = issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)
        if is_named or (issubclass(kind, tuple) and hasattr(kind, "n_sequence_fields")):  # the latter are C's
            return kind, is_named, tuple([_flatten(member, leaves) for member in item])
        leaves.append(item)
        return LEAF
    children, metadata, *entries = entry.flatten_func(item)
    names = tuple(entries[0]) if entries and entries[0] is not None else None
    registered = names, metadata, static_key(metadata), entry.unflatten_func
    return kind, registered, tuple([_flatten(member, leaves) for member in children])


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(leaves)
    kind, facts, children = structure
    if kind is None:
        return None
    items = [_build(child, leaves) for child in children]
    if kind is tuple:
        return tuple(items)
    if kind is list:
        return items
    if kind is dict or kind is OrderedDict:
        return kind(zip(facts[0], items, strict=True))
    if kind is defaultdict:
        return defaultdict(facts[2], zip(facts[0], items, strict=True))
    if kind is deque:
        return deque(items, facts)
    if isinstance(facts, bool):
        return kind(*items) if facts else kind(items)
    return facts[3](facts[1], tuple(items))
