"""Write debug information: the line of the user's code of each instruction.

Assembly then shows the user's lines, and profilers attribute time to them. It is made on request only.
"""

from __future__ import annotations

import re

from ....ir.graph import Location

NOISE = (".cfi_", ".Ltmp", ".Lfunc_", ".file", ".p2align", ".size", ".type", ".ident", ".addrsig")


class FunctionNotes:
    """The notes of one function."""

    def __init__(self, info: DebugInfo, scope: str):
        self.info = info
        self.scope = scope

    def line(self, location: Location) -> str:
        """Return the suffix of an instruction of a user's line."""
        return f", !dbg {self.info.location(self.scope, location)}"

    @property
    def nowhere(self) -> str:
        """Return the suffix of an instruction of no line: LLVM requires one at calls of functions with debug info."""
        return f", !dbg {self.info.node(f'!DILocation(line: 0, column: 0, scope: {self.scope})')}"


class DebugInfo:
    """The metadata of a module."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.file = self.node('!DIFile(filename: "smelt", directory: "")')
        self.unit = self.node(
            "distinct !DICompileUnit(language: DW_LANG_Python, "
            f'file: {self.file}, producer: "smelt", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)'
        )
        self.version = self.node('!{i32 2, !"Debug Info Version", i32 3}')
        self.empty = self.node("!{}")
        self.type = self.node(f"!DISubroutineType(types: {self.empty})")

    def node(self, text: str) -> str:
        """Return the number of a metadata node; add it if it is new."""
        if text not in self.nodes:
            self.nodes[text] = f"!{len(self.nodes)}"
        return self.nodes[text]

    def function(self, name: str) -> FunctionNotes:
        scope = self.node(
            f'distinct !DISubprogram(name: "{name}", scope: {self.file}, file: {self.file}, line: 0, '
            f"type: {self.type}, unit: {self.unit}, spFlags: DISPFlagDefinition | DISPFlagOptimized)"
        )
        return FunctionNotes(self, scope)

    def location(self, scope: str, location: Location) -> str:
        name = str(location).rsplit(":", 1)[0].replace("\\", "/").replace('"', "")
        file = self.node(f'!DIFile(filename: "{name}", directory: "")')
        block = self.node(f"!DILexicalBlockFile(scope: {scope}, file: {file}, discriminator: 0)")
        return self.node(f"!DILocation(line: {location.line}, column: 0, scope: {block})")

    def metadata(self) -> str:
        lines = [f"!llvm.dbg.cu = !{{{self.unit}}}", f"!llvm.module.flags = !{{{self.version}}}"]
        lines.extend(f"{number} = {text}" for text, number in self.nodes.items())
        return "\n".join(lines)


def readable_text(text: str) -> str:
    """Remove the debug information from LLVM text: its comments say the same to people."""
    body = text.split("!llvm.dbg.cu", 1)[0]
    return re.sub(r",? !dbg !\d+", "", body).rstrip() + "\n"


def readable_assembly(text: str) -> str:
    """Reduce assembly to code, with the user's lines as comments and without directives."""
    files: dict[str, str] = {}
    lines: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == ".section" and ".debug" in line:
            break
        if words and words[0] == ".file" and len(words) >= 3:
            files[words[1]] = words[-1].strip('"')
        elif words and words[0] == ".loc":
            comment = f"\t\t# {files.get(words[1], '')}:{words[2]}"
            if words[2] != "0" and (not lines or comment not in lines[-1:]):
                lines.append(comment)
        elif not words or not words[0].startswith(NOISE):
            lines.append(line)
    return "\n".join(lines) + "\n"
