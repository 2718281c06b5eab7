"""Which results may take the place of a parameter: from the text of kernels."""

from __future__ import annotations

from smelt.backend.artifact import Overwrites
from smelt.kernels.loop.parser import parse_kernel
from smelt.passes.memory.in_place import find_overwrites


def found(*texts: str, params: tuple[str, ...] = ("%x",), results: tuple[str, ...] = ("%y",)) -> Overwrites:
    times = find_overwrites([parse_kernel(text) for text in texts], params, results)
    return Overwrites(times.reads, times.writes, times.same_place)


ELEMENTWISE = """
kernel @k(%y: out f32[64], %x: f32[64]) {
  vector<16> %i in 0..64 {
    %0 = load %x[%i]
    %1 = neg(%0) : f32
    store %y[%i], %1
  }
}
"""


def test_each_element_is_read_before_it_is_written():
    assert found(ELEMENTWISE).allow(0, 0)


def test_other_elements_are_read_later():
    assert not found(ELEMENTWISE.replace("%x[%i]", "%x[63 - %i]")).allow(0, 0)


def test_a_second_loop_reads_it_again():
    text = """
    kernel @k(%y: out f32[64], %z: out f32[64], %x: f32[64]) {
      serial %i in 0..64 {
        %0 = load %x[%i]
        store %y[%i], %0
      }
      serial %j in 0..64 {
        %1 = load %x[%j]
        store %z[%j], %1
      }
    }
    """
    overwrites = found(text, results=("%y", "%z"))
    assert not overwrites.allow(0, 0)
    assert not overwrites.allow(1, 0)


def test_a_read_behind_the_write():
    text = """
    kernel @k(%y: out f32[64], %z: out f32[64], %x: f32[64]) {
      serial %i in 0..64 {
        store %y[%i], 1.0:f32
        %0 = load %x[%i]
        store %z[%i], %0
      }
    }
    """
    overwrites = found(text, results=("%y", "%z"))
    assert not overwrites.allow(0, 0)
    assert overwrites.allow(1, 0)


def test_earlier_kernels_have_done_reading():
    reader = ELEMENTWISE.replace("%y", "%t").replace("%x[%i]", "%x[63 - %i]")
    writer = ELEMENTWISE.replace("%x", "%t")
    assert found(reader, writer).allow(0, 0)
    assert not found(writer, reader).allow(0, 0)


def test_what_nobody_reads_may_be_overwritten():
    assert found(ELEMENTWISE, params=("%other",)).allow(0, 0)
