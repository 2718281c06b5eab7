"""Object code to executable memory: linker, loader, the key of machine code in the store."""
