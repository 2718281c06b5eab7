"""How a thread compiles, as native code: it needs Python's lock only before the first part and after the last one.

A thread that gives Python's lock up waits some milliseconds until it has it again, while another runs Python code. So
one call goes through a list of jobs, which may get longer meanwhile: it takes those that nobody has taken yet.

A job, and the tools of a thread, are blocks of 64-bit words. LLVM's functions are among the tools: llvmlite has them.
"""

from __future__ import annotations

# Of a job. Its state: it waits, somebody has taken it, it is done.
STATE, FOLLOWING, TEXT, PLAIN, PARSED, BUFFER, ERROR, WORDS = range(8)
WAITS, TAKEN, DONE = range(3)

# Of the tools.
FUNCTIONS = {
    "create": "LLVMPY_ContextCreate",
    "parse": "LLVMPY_ParseAssembly",
    "run": "LLVMPY_RunNewModulePassManager",
    "emit": "LLVMPY_TargetMachineEmitToMemory",
    "free": "LLVMPY_DisposeModule",
    "close": "LLVMPY_ContextDispose",
}
# The last one is the address of a word that is 1 while the thread needs no lock.
TOOLS = (*FUNCTIONS, "machine", "plain.machine", "passes", "builder", "busy")


def _word(name: str, block: str, number: int, kind: str = "ptr") -> str:
    return f"  %{name}.at = getelementptr i64, ptr %{block}, i64 {number}\n  %{name} = load {kind}, ptr %{name}.at\n"


COMPILE = f"""
; What is in a job is seen by who finds it.
define void @append(ptr %last, ptr %job) nounwind {{
  %at = getelementptr i64, ptr %last, i64 {FOLLOWING}
  store atomic ptr %job, ptr %at release, align 8
  ret void
}}

; Take some of the jobs from the first one on, as many as told or all; how many less than told.
define i64 @compile(ptr %first, i64 %most, ptr %tools) nounwind {{
entry:
{"".join(_word(name, "tools", number) for number, name in enumerate(TOOLS))}
  store atomic i64 1, ptr %busy seq_cst, align 8
  br label %look
look:
  %job = phi ptr [ %first, %entry ], [ %following, %next ]
  %left = phi i64 [ %most, %entry ], [ %left.after, %next ]
  %taken = cmpxchg ptr %job, i64 {WAITS}, i64 {TAKEN} seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %parsing, label %next
parsing:
{_word("text", "job", TEXT)}{_word("plain", "job", PLAIN, "i64")}
  %error = getelementptr i64, ptr %job, i64 {ERROR}
  %context = call ptr %create()
  %module = call ptr %parse(ptr %context, ptr %text, ptr %error)
  %fails = icmp eq ptr %module, null
  br i1 %fails, label %closing, label %parsed
parsed:
  %parsed.at = getelementptr i64, ptr %job, i64 {PARSED}
  store i64 1, ptr %parsed.at
  %is.plain = icmp ne i64 %plain, 0
  br i1 %is.plain, label %emitting, label %combining
combining:
  call void %run(ptr %passes, ptr %module, ptr %builder)
  br label %emitting
emitting:
  %chosen = select i1 %is.plain, ptr %plain.machine, ptr %machine
  %code = call ptr %emit(ptr %chosen, ptr %module, i32 1, ptr %error)
  %buffer = getelementptr i64, ptr %job, i64 {BUFFER}
  store ptr %code, ptr %buffer
  call void %free(ptr %module)
  br label %closing
closing:
  call void %close(ptr %context)
  store atomic i64 {DONE}, ptr %job seq_cst, align 8
  %less = sub i64 %left, 1
  br label %next
next:
  %left.after = phi i64 [ %left, %look ], [ %less, %closing ]
  %following.at = getelementptr i64, ptr %job, i64 {FOLLOWING}
  %following = load atomic ptr, ptr %following.at acquire, align 8
  %enough = icmp eq i64 %left.after, 0
  %last = icmp eq ptr %following, null
  %stop = or i1 %enough, %last
  br i1 %stop, label %done, label %look
done:
  store atomic i64 0, ptr %busy seq_cst, align 8
  ret i64 %left.after
}}
"""
