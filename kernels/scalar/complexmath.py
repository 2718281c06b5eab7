"""Expansions of scalar ops on complex operands, in terms of their parts."""

from __future__ import annotations

import math

from .term import Term, select


def parts(z: Term) -> tuple[Term, Term]:
    return z.op("real"), z.op("imag")


def make(real: Term, imag: Term) -> Term:
    return real.op("complex", imag)


def add(z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return make(a + c, b + d)


def sub(z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return make(a - c, b - d)


def mul(z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return make(a * c - b * d, a * d + b * c)


def div(z: Term, w: Term) -> Term:
    """z / w, divided by the larger part of w last, so that its square neither overflows nor vanishes.

    A quotient by zero, of either sign, has the parts a / 0 and b / 0."""
    (a, b), (c, d) = parts(z), parts(w)
    forward = abs(c) >= abs(d)
    large, small = select(forward, c, d), select(forward, d, c)
    along, across = select(forward, a, b), select(forward, b, a)
    ratio = small / large
    size = ratio * ratio + 1
    real = (along + across * ratio) / size / large
    imag = (across - along * ratio) / size / large
    zero = large.equals(0) & small.equals(0)
    real, imag = select(zero, a * math.inf, real), select(forward, imag, -imag)
    return make(real, select(zero, b * math.inf, imag))


def reciprocal(z: Term) -> Term:
    a, _ = parts(z)
    return div(make(a.constant(1), a.constant(0)), z)


def neg(z: Term) -> Term:
    a, b = parts(z)
    return make(-a, -b)


def conj(z: Term) -> Term:
    a, b = parts(z)
    return make(a, -b)


def absolute(z: Term) -> Term:
    a, b = parts(z)
    return a.op("hypot", b)


def angle(z: Term) -> Term:
    a, b = parts(z)
    return b.op("atan2", a)


def eq(z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return a.equals(c) & b.equals(d)


def ne(z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return a.differs(c) | b.differs(d)


def where(condition: Term, z: Term, w: Term) -> Term:
    (a, b), (c, d) = parts(z), parts(w)
    return make(select(condition, a, c), select(condition, b, d))


def isnan(z: Term) -> Term:
    a, b = parts(z)
    return a.op("isnan") | b.op("isnan")


def isinf(z: Term) -> Term:
    a, b = parts(z)
    return a.op("isinf") | b.op("isinf")


def isfinite(z: Term) -> Term:
    a, b = parts(z)
    return a.op("isfinite") & b.op("isfinite")


def exp(z: Term) -> Term:
    """exp(a) (cos b + i sin b)."""
    a, b = parts(z)
    size = a.op("exp")
    # A real operand stays real: 0 times an infinite size would be nan.
    return make(size * b.op("cos"), select(b.equals(0), b, size * b.op("sin")))


def exp2(z: Term) -> Term:
    a, b = parts(z)
    return exp(make(a * math.log(2), b * math.log(2)))


def expm1(z: Term) -> Term:
    """expm1(a) cos b - 2 sin(b / 2) ** 2 + i exp(a) sin b: no cancellation near 0."""
    a, b = parts(z)
    half = (b * 0.5).op("sin")
    return make(a.op("expm1") * b.op("cos") - 2 * half * half, a.op("exp") * b.op("sin"))


def log_size(a: Term, b: Term) -> Term:
    """log |a + i b|, precise also where the size is near 1."""
    large, small = abs(a).op("maximum", abs(b)), abs(a).op("minimum", abs(b))
    near = ((large - 1) * (large + 1) + small * small).op("log1p") * 0.5
    return select((large > 0.5) & (large < 2), near, a.op("hypot", b).op("log"))


def log(z: Term) -> Term:
    """log |z| + i angle(z)."""
    a, b = parts(z)
    return make(log_size(a, b), b.op("atan2", a))


def log2(z: Term) -> Term:
    a, b = parts(log(z))
    return make(a * (1 / math.log(2)), b * (1 / math.log(2)))


def log10(z: Term) -> Term:
    a, b = parts(log(z))
    return make(a * (1 / math.log(10)), b * (1 / math.log(10)))


def log1p(z: Term) -> Term:
    """log |1 + z| from a (a + 2) + b b, which does not cancel near 0."""
    a, b = parts(z)
    one = a + 1
    near = (a * (a + 2) + b * b).op("log1p") * 0.5
    close = (abs(a) < 0.5) & (abs(b) < 0.5)
    return make(select(close, near, log_size(one, b)), b.op("atan2", one))


def sqrt(z: Term) -> Term:
    """The root of the larger part first; the other part follows from the product of the two."""
    a, b = parts(z)
    size = a.op("hypot", b)
    root = ((size * 0.5) + abs(a) * 0.5).op("sqrt")
    other = select(root.equals(0), 0, abs(b) / (2 * select(root.equals(0), 1, root)))
    forward = a >= 0
    real = select(forward, root, other)
    imag = select(forward, other, root)
    # An infinite imaginary part is an infinite root, whatever the real part is.
    infinite = b.op("isinf")
    real, imag = select(infinite, math.inf, real), select(infinite, math.inf, imag)
    return make(real, imag.op("copysign", b))


def rsqrt(z: Term) -> Term:
    return reciprocal(sqrt(z))


def power(z: Term, w: Term) -> Term:
    """exp(w log z); z ** 0 is 1, and 0 ** w follows the size, which is nan for an imaginary w."""
    a, b = parts(z)
    c, d = parts(w)
    size = log_size(a, b)
    turn = b.op("atan2", a)
    zero = a.equals(0) & b.equals(0)
    result_real, result_imag = parts(exp(make(c * size - d * turn, c * turn + d * size)))
    vanishes = c > 0
    limit = select(vanishes, c.constant(0), select(c < 0, c.constant(math.inf), c.constant(math.nan)))
    real = select(zero, limit, result_real)
    imag = select(zero, select(vanishes, c.constant(0), c.constant(math.nan)), result_imag)
    plain = c.equals(0) & d.equals(0)
    return make(select(plain, 1, real), select(plain, 0, imag))


def sin(z: Term) -> Term:
    """-i sinh(i z)."""
    a, b = parts(z)
    real, imag = parts(sinh(make(-b, a)))
    return make(imag, -real)


def cos(z: Term) -> Term:
    """cosh(i z)."""
    a, b = parts(z)
    return cosh(make(-b, a))


def sinh(z: Term) -> Term:
    """sinh a cos b + i cosh a sin b; a real operand stays real."""
    a, b = parts(z)
    return make(a.op("sinh") * b.op("cos"), select(b.equals(0), b, a.op("cosh") * b.op("sin")))


def cosh(z: Term) -> Term:
    """cosh a cos b + i sinh a sin b; of a real operand it is real."""
    a, b = parts(z)
    none = b.op("copysign", a) * a.constant(1).op("copysign", b)
    return make(a.op("cosh") * b.op("cos"), select(b.equals(0), none, a.op("sinh") * b.op("sin")))


def tanh(z: Term) -> Term:
    """(sinh a cosh a + i sin b cos b) / (sinh(a) ** 2 + cos(b) ** 2); beyond 20 it is 1 to the last digit."""
    a, b = parts(z)
    near = a.op("maximum", -20.0).op("minimum", 20.0)
    grow, turn = near.op("sinh"), b.op("cos")
    size = grow * grow + turn * turn
    real = grow * near.op("cosh") / size
    imag = b.op("sin") * turn / size
    far = abs(a) > 20
    return make(select(far, a.constant(1).op("copysign", a), real), select(far, imag * 0, imag))


def tan(z: Term) -> Term:
    """-i tanh(i z)."""
    a, b = parts(z)
    real, imag = parts(tanh(make(-b, a)))
    return make(imag, -real)


def sigmoid(z: Term) -> Term:
    """(1 + tanh(z / 2)) / 2."""
    a, b = parts(z)
    real, imag = parts(tanh(make(a * 0.5, b * 0.5)))
    return make(real * 0.5 + 0.5, imag * 0.5)


def unit_roots(z: Term) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
    """The parts of sqrt(1 - z) and of sqrt(1 + z)."""
    a, b = parts(z)
    return parts(sqrt(make(1 - a, -b))), parts(sqrt(make(1 + a, b)))


def direction(x: Term) -> Term:
    """A part of an infinite number by its size: 1 or -1 if it is infinite itself, else 0; nan stays nan."""
    return select(x.op("isinf"), x.constant(1).op("copysign", x), x * 0)


def infinite_angle(up: Term, along: Term, finite: Term) -> Term:
    """The angle of (along, up) where a part is infinite, `finite` elsewhere."""
    return select(up.op("isinf") | along.op("isinf"), direction(up).op("atan2", direction(along)), finite)


def asin(z: Term) -> Term:
    """atan2(a, re(sqrt(1 - z) sqrt(1 + z))) + i asinh(im(conj(sqrt(1 - z)) sqrt(1 + z)))."""
    a, b = parts(z)
    (c, d), (e, f) = unit_roots(z)
    real = infinite_angle(a, abs(b), a.op("atan2", c * e - d * f))
    return make(real, (c * f - d * e).op("asinh"))


def acos(z: Term) -> Term:
    """2 atan2(re sqrt(1 - z), re sqrt(1 + z)) + i asinh(im(conj(sqrt(1 + z)) sqrt(1 - z)))."""
    a, b = parts(z)
    (c, d), (e, f) = unit_roots(z)
    real = infinite_angle(abs(b), a, 2 * c.op("atan2", e))
    return make(real, (e * d - f * c).op("asinh"))


def asinh(z: Term) -> Term:
    """-i asin(i z)."""
    a, b = parts(z)
    real, imag = parts(asin(make(-b, a)))
    return make(imag, -real)


def acosh(z: Term) -> Term:
    """asinh(re(conj(sqrt(z - 1)) sqrt(z + 1))) + 2 i atan2(im sqrt(z - 1), re sqrt(z + 1))."""
    a, b = parts(z)
    lower, upper = sqrt(make(a - 1, b)), sqrt(make(a + 1, b))
    (c, d), (e, f) = parts(lower), parts(upper)
    return make((c * e + d * f).op("asinh"), infinite_angle(b, a, 2 * d.op("atan2", e)))


def atanh(z: Term) -> Term:
    """log1p(4 |a| / ((1 - |a|) ** 2 + b b)) / 4, with the sign of a, + i atan2(2 b, (1 - a)(1 + a) - b b) / 2.

    Far from zero it is 1 / z and a right angle; at 1 and -1 the square of b may vanish."""
    a, b = parts(z)
    along, across = abs(a), abs(b)
    far = along.op("maximum", across) > 1e8
    near, side = select(far, 0, along), select(far, 0, b)
    distance = (1 - near) * (1 - near) + side * side
    real = (4 * near / distance).op("log1p") * 0.25
    pole = near.equals(1) & (across < 1e-8)
    real = select(pole, (math.log(2) - across.op("log")) * 0.5, real)
    imag = (2 * side).op("atan2", (1 - near) * (1 + near) - side * side) * 0.5
    size = a.op("hypot", b)
    infinite = size.op("isinf")
    inverse = select(infinite, 0, along / size / size)
    drop = select(infinite, 0, b / size / size)
    right = a.constant(math.pi / 2).op("copysign", b)
    return make(select(far, inverse, real).op("copysign", a), select(far, right - drop, imag))


def atan(z: Term) -> Term:
    """-i atanh(i z)."""
    a, b = parts(z)
    real, imag = parts(atanh(make(-b, a)))
    return make(imag, -real)
