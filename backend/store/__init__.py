"""Compiled code on disk, which files are trusted, and smelt's own sources as a part of the key."""
