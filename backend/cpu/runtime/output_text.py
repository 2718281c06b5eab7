"""Native code: a call's results in the shape of what the function returned. A part of entry_text.py."""

from __future__ import annotations

TEXT = """
; The results in the shape of what the function returned.
define internal ptr @build(ptr %results, ptr %cursor) #0 {{
entry:
  %words = load ptr, ptr %cursor
  %kind = load i64, ptr %words
  %word1.at = getelementptr i64, ptr %words, i64 1
  %word1 = load i64, ptr %word1.at
  %behind = getelementptr i64, ptr %words, i64 2
  store ptr %behind, ptr %cursor
  switch i64 %kind, label %object [
    i64 {PUT_RESULT}, label %result
    i64 {PUT_TUPLE}, label %tuple
    i64 {PUT_LIST}, label %list
    i64 {PUT_DICT}, label %dict
  ]
object:
  %fixed = inttoptr i64 %word1 to ptr
  call void @Py_IncRef(ptr %fixed)
  ret ptr %fixed
result:
  %at = getelementptr ptr, ptr %results, i64 %word1
  %array = load ptr, ptr %at
  ret ptr %array
tuple:
  %new.tuple = call ptr @PyTuple_New(i64 %word1)
  br label %sequence
list:
  %new.list = call ptr @PyList_New(i64 %word1)
  br label %sequence
sequence:
  %made = phi ptr [ %new.tuple, %tuple ], [ %new.list, %list ]
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %nothing, label %next.item
next.item:
  %position = phi i64 [ 0, %sequence ], [ %position.next, %placed ]
  %more = icmp slt i64 %position, %word1
  br i1 %more, label %item, label %done
item:
  %position.next = add i64 %position, 1
  %member = call ptr @build(ptr %results, ptr %cursor)
  %no.member = icmp eq ptr %member, null
  br i1 %no.member, label %drop, label %place
place:
  %is.tuple = icmp eq i64 %kind, {PUT_TUPLE}
  br i1 %is.tuple, label %place.tuple, label %place.list
place.tuple:
  %ignored.tuple = call i32 @PyTuple_SetItem(ptr %made, i64 %position, ptr %member)
  br label %placed
place.list:
  %ignored.list = call i32 @PyList_SetItem(ptr %made, i64 %position, ptr %member)
  br label %placed
placed:
  br label %next.item
done:
  ret ptr %made
drop:
  call void @Py_DecRef(ptr %made)
  br label %nothing
nothing:
  ret ptr null

dict:
  %new.dict = call ptr @PyDict_New()
  %no.dict = icmp eq ptr %new.dict, null
  br i1 %no.dict, label %nothing, label %next.entry
next.entry:
  %number = phi i64 [ 0, %dict ], [ %number.next, %entered ]
  %more.entries = icmp slt i64 %number, %word1
  br i1 %more.entries, label %enter, label %dict.done
enter:
  %number.next = add i64 %number, 1
  %key.at = load ptr, ptr %cursor
  %key = load ptr, ptr %key.at
  %value.words = getelementptr i64, ptr %key.at, i64 1
  store ptr %value.words, ptr %cursor
  %value = call ptr @build(ptr %results, ptr %cursor)
  %no.value = icmp eq ptr %value, null
  br i1 %no.value, label %drop.dict, label %set
set:
  %status = call i32 @PyDict_SetItem(ptr %new.dict, ptr %key, ptr %value)
  call void @Py_DecRef(ptr %value)
  %refused = icmp ne i32 %status, 0
  br i1 %refused, label %drop.dict, label %entered
entered:
  br label %next.entry
drop.dict:
  call void @Py_DecRef(ptr %new.dict)
  br label %nothing
dict.done:
  ret ptr %new.dict
}}
"""
