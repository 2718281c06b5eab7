"""Source to PTX and machine code; what a GPU offers; the key of machine code in the store."""
