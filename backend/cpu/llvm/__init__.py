"""LLVM text to object code: functions and values as text, compile units, the engine and its threads."""
