"""LLVM text to object code: the text's builder, compile units, the engine and its threads, the target."""
