"""Calls of NumPy's functions by family, for test_numpy_functions.py, which compares them with NumPy on its values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

AXES = ("None", "0", "-1", "(0, 1)", "()", "5")


def statistics() -> Iterator[str]:
    for name, value, axis in itertools.product(
        ("ptp", "nanmax", "nanmin", "nanprod", "nancumsum", "nancumprod", "nanvar", "nanstd"), "xiubcn", AXES
    ):
        yield f"np.{name}({value}, axis={axis})"
    for name in ("ptp", "nanmax", "nanmin", "nanprod", "nanvar", "nanstd"):
        yield from (f"np.{name}(n, 0, keepdims=True)", f"np.{name}(n, axis=1)", f"np.{name}(h)", f"np.{name}(n, out=m)")
    for ddof in ("0", "1", "2", "3", "0.5"):
        yield from (f"np.nanvar(n, axis=0, ddof={ddof})", f"np.nanstd(x, ddof={ddof})")
    for name, value, more in itertools.product(
        ("sum", "prod", "nansum"), "xiub",
        ("initial=3", "initial=2.5", "where=b", "where=b, initial=2", "initial=1j", "where=1", "where=b, axis=0"),
    ):  # fmt: skip
        yield f"np.{name}({value}, {more})"
    for name, value, more in itertools.product(
        ("max", "min"), "xiub",
        ("initial=3", "initial=2.5", "where=b", "where=b, initial=2", "initial=-100, axis=0", "initial=True"),
    ):  # fmt: skip
        yield f"np.{name}({value}, {more})"
    for name, value in itertools.product(("any", "all"), "xib"):
        yield from (f"np.{name}({value}, where=b)", f"np.{name}({value}, 0, where=~b)")
    for value, axis in itertools.product("xiubcm", ("None", "0", "-1", "(0, 1)", "7")):
        yield from (f"np.average({value}, axis={axis})", f"np.average({value}, {axis}, returned=True)")
        yield f"np.average({value}, {axis}, keepdims=True)"
    for weights, axis in itertools.product(
        ("i", "[1, 2, 3, 4]", "[0.5, 1, 2]", "v", "b", "u"), ("None", "0", "1", "-1")
    ):
        yield from (f"np.average(i, {axis}, {weights})", f"np.average(x[0], {axis}, weights={weights}, returned=True)")
    for value, more in itertools.product(
        ("i", "m", "x[0]", "v", "b", "c", "h", "x", "s"),
        (
            "",
            ", rowvar=False",
            ", bias=True",
            ", ddof=0",
            ", ddof=2",
            ", y={}",
            ", ddof=0.5",
            ", fweights=[1, 2, 3, 4]",
        ),
    ):
        yield f"np.cov({value}{more.format(value)})"
    for value in ("i", "m", "x[0]", "v", "c"):
        yield from (f"np.corrcoef({value})", f"np.corrcoef({value}, rowvar=False)", f"np.corrcoef({value}, {value})")
    for value, more in itertools.product(
        "xiubcvs",
        (
            "",
            ", 2",
            ", 0",
            ", axis=0",
            ", 1, 0",
            ", 7",
            ", -1",
            ", prepend=0",
            ", append=2.5",
            ", prepend={v}, append=1",
            ", axis=9",
        ),
    ):
        yield f"np.diff({value}{more.format(v=value)})"
    for value, more in itertools.product("xiuv", ("", ", 9", ", [1, 2]", ", None, 3", ", to_begin=0.5", ", i, v")):
        yield f"np.ediff1d({value}{more})"
    name = "trapezoid"
    for value, more in itertools.product(
        "xivb", ("", ", dx=0.5", ", axis=0", ", x=v", ", x=np.arange(4)", ", i", ", v, axis=-1")
    ):
        yield f"np.{name}({value}{more})"
    for value, more in itertools.product(
        ("x", "v", "i", "c", "s"),
        ("", ", 2.0", ", axis=-1", ", axis=(0, 1)", ", edge_order=2", ", v, axis=-1", ", v**2, axis=-1, edge_order=2",
         ", 1.0, 2.0, axis=(0, 1)", ", edge_order=3", ", 1.0, 2.0"),
    ):  # fmt: skip
        yield f"np.gradient({value}{more})"
    for one, other in itertools.product(("i", "x[0]", "v", "n", "c", "2"), repeat=2):
        yield from (f"np.isclose({one}, {other})", f"np.isclose({one}, {other}, 0.1, 0.5, True)")
        yield from (f"np.allclose({one}, {other})", f"np.array_equal({one}, {other})")
    yield from (
        "np.allclose(n, n, equal_nan=True)", "np.allclose(x, x + 1e-9)", "np.allclose(x, x + 1e-3, atol=1e-2)",
        "np.array_equal(n, n)", "np.array_equal(n, n, equal_nan=True)", "np.array_equal(x, x)",
    )  # fmt: skip
    for name, value, more in itertools.product(
        ("add.reduce", "multiply.reduce", "maximum.reduce", "minimum.reduce", "logical_and.reduce", "logical_or.reduce",
         "add.accumulate", "multiply.accumulate", "maximum.accumulate", "minimum.accumulate", "logaddexp.reduce",
         "logaddexp.accumulate", "subtract.reduce"),
        "xiub", ("", ", axis=1", ", -1"),
    ):  # fmt: skip
        yield f"np.{name}({value}{more})"
    for name, value in itertools.product(("add", "maximum", "multiply"), "xiv"):
        yield from (f"np.{name}.reduce({value}, axis=None)", f"np.{name}.reduce({value}, 0, keepdims=True)")
        yield from (f"np.{name}.outer({value}, v)", f"np.{name}.outer(v, 2)", f"np.{name}.reduce({value}, initial=5)")


def arrangements() -> Iterator[str]:
    for name, value in itertools.product(
        ("atleast_1d", "atleast_2d", "atleast_3d", "matrix_transpose", "fliplr", "flipud", "unstack"), "xivsbo"
    ):
        yield f"np.{name}({value})"
    yield from ("np.atleast_1d(s, v)", "np.atleast_2d(v, x)", "np.unstack(x, axis=1)", "np.unstack(x, axis=5)")
    yield from ("np.broadcast_arrays(v, i)", "np.broadcast_arrays(o, v, s)", "np.broadcast_arrays(v, n)")
    for axis, start in itertools.product(("0", "1", "-1", "4"), ("0", "1", "2", "3", "-1", "9")):
        yield f"np.rollaxis(x, {axis}, {start})"
    lists = ("[i, i]", "[v, v]", "[x, x]", "[s, s]", "[v, i.T]", "[u, i]", "(b, i)", "[]", "[v, h]", "[i, v]")
    for name, items in itertools.product(("dstack", "column_stack"), lists):
        yield f"np.{name}({items})"
    for items in (
        "[i, i]",
        "[[i, i], [u, u]]",
        "[[m, v[:, None]], [v[None], s]]",
        "[v, v]",
        "i",
        "[[i], []]",
        "[(i, i)]",
        "[1, v]",
        "[[[i]]]",
        "[s, 2]",
    ):
        yield f"np.block({items})"
    for value, other, axis in itertools.product(("i", "v", "x"), ("i", "1", "[1, 2]", "v"), ("None", "0", "-1")):
        yield f"np.append({value}, {other}, {axis})"
    for name, value, parts in itertools.product(
        ("hsplit", "vsplit", "dsplit"), "ivxm", ("2", "1", "[1]", "[1, 3]", "3")
    ):
        yield f"np.{name}({value}, {parts})"
    for places, values, axis in itertools.product(
        ("1", "-1", "[0, 2]", "[1, 1]", "slice(0, 2)", "[0]", "9", "[]", "i[0, :2]"),
        ("7", "2.5", "[1, 2]", "[1, 2, 3, 4]", "[[1], [2]]"),
        ("None", "0", "1"),
    ):
        yield f"np.insert(i, {places}, {values}, {axis})"
    yield from (
        "np.insert(v, 2, [5, 6])",
        "np.insert(v, [1, 3], s)",
        "np.insert(b, 0, 2)",
        "np.insert(x, 1, x[:, 0], 1)",
        "np.insert(x, 1, 5, 2)",
    )
    for places, axis in itertools.product(
        ("1", "-1", "[0, 2]", "[1, 1]", "slice(0, 2)", "slice(None, None, 2)", "9", "[]", "[True, False, True]"),
        ("None", "0", "1"),
    ):
        yield f"np.delete(i, {places}, {axis})"
    for value, shape in itertools.product("ivse", ("(2, 3)", "5", "(3, 4, 2)", "0", "()", "-1")):
        yield f"np.resize({value}, {shape})"
    for value, k, axes in itertools.product("ixv", ("1", "2", "-1", "4"), ("(0, 1)", "(1, 0)", "(0, 2)", "(0, 0)")):
        yield f"np.rot90({value}, {k}, {axes})"
    for value, places, axis in itertools.product(
        ("i", "x[0]", "b"),
        ("[[0, 1, -1, 2]]", "[[0], [1], [2]]", "[[0, 1], [1, 0], [-1, 2]]", "i % 3", "[0, 1]", "[[0.5]]"),
        ("0", "1", "-1", "None"),
    ):
        yield f"np.take_along_axis({value}, np.array({places}) if isinstance({places}, list) else {places}, {axis})"
    yield "np.take_along_axis(v, np.array([3, 0, -4]), 0)"
    for value, side in itertools.product(
        ("i", "0.5", "v", "u", "s", "h", "[1, 2]", "c"), ("'left'", "'right'", "'up'")
    ):
        yield f"np.searchsorted(np.array([-2, 0, 3, 3, 8]), {value}, {side})"
    for value, right in itertools.product(("x", "i", "v", "b", "n", "c", "e", "2.5"), ("", ", right=True")):
        yield from (
            f"np.digitize({value}, {bins}{right})" for bins in ("[-1, 0, 0, 2.5]", "np.array([3, 1, 0])", "[1]", "[]")
        )
    yield from (
        "np.digitize(v, [0, 2, 1])",
        "np.digitize(v, [[0, 1]])",
        "np.digitize(v, [0, np.nan])",
        "np.digitize(v, v)",
    )
    yield from ("np.searchsorted(i[0], i)", "np.searchsorted(i, i)", "np.searchsorted(i[0], v, sorter=[0, 1, 2, 3])")
    for value, test in itertools.product(("i", "u", "x", "s", "b"), ("[1, 2, 255]", "i", "2", "v", "[]", "[0.5, 3]")):
        yield from (f"np.isin({value}, {test})", f"np.isin({value}, {test}, invert=True)")
    for value, shape in itertools.product(
        ("i % 7", "u", "np.argmax(x)", "2", "x"), ("(3, 4)", "(300,)", "(2, 200)", "12")
    ):
        yield f"np.unravel_index({value}, {shape})"
    yield from (
        "np.put_along_axis(i, i % 3, 1, 0)", "np.fill_diagonal(m, 0)", "np.put(i, [0], 1)", "np.place(i, b, [1])",
        "np.putmask(i, b, i)", "np.copyto(i, i)",
    )  # fmt: skip
    for value, more in itertools.product(
        "ivbx",
        (
            "1, 'reflect'",
            "1, 'edge'",
            "1, 'wrap'",
            "1, 'symmetric'",
            "(0, 2), 'edge'",
            "((1, 2), (0, 1)), 'wrap'",
            "2, 'reflect', reflect_type='odd'",
            "1, 'mean'",
            "5, 'reflect'",
            "9, 'wrap'",
        ),
    ):
        yield f"np.pad({value}, {more})"
    yield from ("np.pad(i, 1, constant_values=((1, 2), (3, 4)))", "np.pad(v, (1, 2), constant_values=(5, 6))")


def creations() -> Iterator[str]:
    for name, value, k in itertools.product(("diag", "diagflat", "diagonal"), "vimxbs", ("0", "1", "-2", "9")):
        yield f"np.{name}({value}, {k})"
    yield from ("np.diagonal(x, 0, 1, 2)", "np.diagonal(x, axis1=0, axis2=2)", "np.diagonal(x, 0, 0, 0)")
    for value, more in itertools.product("vuibh", ("", ", 3", ", 0", ", increasing=True", ", 1", ", -1")):
        yield f"np.vander({value if value in 'vh' else value + '[0]'}{more})"
    for items, more in itertools.product(
        ("v", "v, h", "v, i[0], b[:, 0]", "s, v", "i"), ("", ", indexing='ij'", ", sparse=True", ", indexing='no'")
    ):
        yield f"np.meshgrid({items}{more})"
    for ends, more in itertools.product(
        ("s, 5", "0, v", "v, i[0]", "u[0], 3", "c[0], 1", "b[0], h"),
        (
            "",
            ", 7",
            ", 1",
            ", 0",
            ", 5, endpoint=False",
            ", 5, True, True",
            ", 4, dtype=int",
            ", 3, axis=-1",
            ", 2.5",
            ", -1",
        ),
    ):
        yield f"np.linspace({ends}{more})"
    for name, value in itertools.product(("tril_indices_from", "triu_indices_from"), "imvx"):
        yield from (f"np.{name}({value})", f"np.{name}({value}, 1)")
    yield from ("np.astype(i, float)", "np.astype(x, np.int8)", "np.astype(c, complex)")


def polynomials() -> Iterator[str]:
    for p, x in itertools.product(("v", "[1, 2, 3]", "i[0]", "2", "c[0]", "i"), ("v", "i", "x", "s", "3")):
        yield f"np.polyval({p}, {x})"
    for name, one, other in itertools.product(
        ("polyadd", "polysub", "polymul", "convolve", "correlate"),
        ("v", "i[0]", "[1, 2]", "c[0]", "2", "b[0]", "h", "i"),
        ("v", "[1, 2, 3]", "u[0, :3]", "c[0, :2]", "s", "b[0, :2]"),
    ):
        yield f"np.{name}({one}, {other})"
    for name, one, other, mode in itertools.product(
        ("convolve", "correlate"),
        ("v", "i[0]", "c[0]"),
        ("[1, 2, 3]", "[1, 2]", "c[0, :3]", "x.ravel()[:6]", "x.ravel()[:7]"),
        ("'full'", "'same'", "'valid'", "'no'"),
    ):
        yield f"np.{name}({one}, {other}, {mode})"
        yield f"np.{name}({other}, {one}, {mode})"
    for value, m in itertools.product(("v", "i[0]", "c[0]", "2", "u[0]"), ("0", "1", "2", "5", "-1")):
        yield from (f"np.polyder({value}, {m})", f"np.polyint({value}, {m})")
    yield from ("np.polyint(v, 2, 1)", "np.polyint(v, 2, [1, 2])", "np.polyint(v, 1, s)", "np.polyint(v, 2, [1, 2, 3])")


def products() -> Iterator[str]:
    for one, other in itertools.product(("i", "m", "v", "s", "x", "c", "b", "u", "2"), repeat=2):
        yield f"np.inner({one}, {other})"
    for more in ("", ", axisa=0", ", axis=0", ", axisc=0"):
        yield from (
            f"np.cross(i.T, i.T{more})",
            f"np.cross(x[0].T, [1, 2, 3]{more})",
            f"np.cross(i[:, :3], x[0, :, 1:]{more})",
        )
    yield from (
        "np.cross(v, v)",
        "np.linalg.multi_dot([i, m, v])",
        "np.linalg.multi_dot([v, m, v])",
        "np.linalg.multi_dot([v])",
        "np.linalg.multi_dot([i.T, x[0], m])",
    )
    for value, n in itertools.product(
        ("m", "i[:3, :3]", "i", "x[:, :, :3]", "c[:, :3]"), ("0", "1", "2", "3", "7", "1.5")
    ):
        yield f"np.linalg.matrix_power({value}, {n})"
    for value, order, axis in itertools.product(
        ("v", "i", "m", "x", "c", "s", "b", "h"),
        ("None", "1", "2", "0", "np.inf", "-np.inf", "-1", "3", "0.5", "'fro'", "'no'"),
        ("None", "0", "-1", "(0, 1)", "(-1, 0)", "7"),
    ):
        yield f"np.linalg.norm({value}, {order}, {axis})"
    for order in ("None", "1", "np.inf"):
        yield from (f"np.linalg.norm(x, {order}, 1, True)", f"np.linalg.norm(x, {order}, (0, 2), keepdims=True)")
    yield "np.linalg.norm(x, keepdims=True)"


def functional() -> Iterator[str]:
    for function, axis in itertools.product(
        ("np.sum", "lambda r: r * 2", "lambda r: r[:2]", "lambda r: np.stack([r, r])", "np.cumsum"),
        ("0", "1", "-1", "5"),
    ):
        yield f"np.apply_along_axis({function}, {axis}, i)"
        yield f"np.apply_along_axis({function}, {axis}, x)"
    yield from (
        "np.apply_over_axes(np.sum, x, [0, 2])",
        "np.apply_over_axes(np.sum, x, 1)",
        "np.apply_over_axes(np.sum, x, (0, 0))",
    )
    yield from ("np.iscomplexobj(c)", "np.iscomplexobj(x)", "np.isrealobj(c)", "np.isrealobj(i)")
    yield from (
        "np.zeros(1, np.result_type(x, i))",
        "np.zeros(1, np.result_type(h, 2.5))",
        "np.zeros(1, np.result_type(u, 'i2'))",
    )
    yield "np.can_cast(x, 'f8')"
    for value in "xiuvhs":
        yield f"np.i0({value})"


SPECIAL = "np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -2.5, 1.0, 1e300])"


def elementwise() -> Iterator[str]:
    for name, value in itertools.product(
        ("fix", "sinc", "nan_to_num", "angle", "isreal", "iscomplex", "isposinf", "isneginf", "cbrt", "fabs", "degrees",
         "radians", "deg2rad", "rad2deg", "modf", "frexp", "spacing", "bitwise_count", "around", "unwrap"),
        "xiubchsn",
    ):  # fmt: skip
        yield f"np.{name}({value})"
    for name in ("fix", "sinc", "nan_to_num", "angle", "isposinf", "isneginf", "cbrt", "fabs", "modf", "spacing"):
        yield from (f"np.{name}({SPECIAL} + 0 * s)", f"np.{name}(np.float32([np.inf, -0.0, 3.5, -8, 1e-40]) + 0 * s)")
    yield from ("np.nan_to_num(n, nan=2)", "np.nan_to_num(n / 0, posinf=1, neginf=-1)", "np.nan_to_num(c / 0)")
    yield from ("np.angle(c, True)", "np.around(x, 1)", "np.fix(x, out=m)", "np.cbrt(x, where=b)")
    for functions in ("[1, 2]", "[1, 2, 3]", "[lambda v: v * 2, np.abs]", "[np.sin, 0.5, lambda v: -v]", "[1]"):
        for value in "xiv":
            yield f"np.piecewise({value}, [{value} < 0, {value} >= 1], {functions})"
    yield "np.piecewise(v, v > 0, [1, -1])"
    for index, mode in itertools.product(("i % 3", "i", "u % 4", "1", "x"), ("'raise'", "'wrap'", "'clip'", "'no'")):
        yield f"np.choose({index}, [i, 7, x[0]], mode={mode})"
    for x, more in itertools.product(
        ("x", "i", "2.5", "n", SPECIAL), ("", ", left=-7", ", right=9.5", ", period=4", ", period=-3.5", ", period=0")
    ):
        yield f"np.interp({x}, np.array([-2, -0.5, 1, 3]), v{more})"
        yield f"np.interp({x} + 0 * s, [0.0], [5])"
    yield from ("np.interp(x, [0, 1, 1, 2], v)", "np.interp(x, [0, 1], v)", "np.interp(v, [0, 1, 2, 3], c[0])",
                "np.interp(v, [-1, 0, 1, 2], [1, np.inf, np.inf, 3])")  # fmt: skip
    for value, more in itertools.product(
        ("x * 5", "i * 3", "v * 9"), ("", ", 4", ", axis=0", ", period=4", ", period=5")
    ):
        yield f"np.unwrap({value}{more})"
    for one, other in itertools.product(("v", "i", "x", "c", "b", "m"), repeat=2):
        for name in ("vecdot", "matvec", "vecmat"):
            yield f"np.{name}({one}, {other})"


def orders() -> Iterator[str]:
    for name, value, axis in itertools.product(("sort", "argsort"), "xiubvsne", ("None", "0", "-1", "1", "5")):
        yield f"np.{name}({value}, axis={axis})"
    for name in ("sort", "argsort"):
        # A kind that is not stable gives argsort any order of equal elements: these have none.
        yield from (f"np.{name}(v)", f"np.{name}(x, 0, 'stable')", f"np.{name}(x, stable=True)", f"np.{name}(c)")
    for name, kth, axis in itertools.product(
        ("partition", "argpartition"), ("0", "1", "-1", "[0, 1]", "9"), ("0", "-1")
    ):
        # What stands on each side of the kth has no order: sorted, it is compared.
        yield f"np.sort(np.{name}(x, {kth}, {axis}), {axis})"
        yield f"np.take(np.{name}(v, {kth}), {kth})"
    yield from (
        "np.lexsort((b[0], i[1], i[0]))",
        "np.lexsort((u, i), axis=0)",
        "np.lexsort((i,))",
        "np.lexsort(x[:, 0])",
    )
    for name, value, axis in itertools.product(("median", "nanmedian"), "xiuvshne", AXES):
        yield f"np.{name}({value}, axis={axis})"
        yield f"np.{name}({value}, {axis}, keepdims=True)"
    for name, q in (
        *itertools.product(
            ("quantile", "nanquantile"),
            ("0.3", "1", "[0.2, 0.9]", "np.float32([0.2, 0.9])", "np.array([[0.1], [0.5]])", "1.5", "'a'"),
        ),
        *itertools.product(("percentile", "nanpercentile"), ("30", "100", "[20, 90]", "np.float32([20, 90])", "101")),
    ):
        for value, axis in itertools.product("xivhn", ("None", "0", "-1", "(0, 1)")):
            yield f"np.{name}({value}, {q}, axis={axis})"
        yield from (f"np.{name}(x, {q}, 1, keepdims=True)", f"np.{name}(x, {q}, keepdims=True)")
        for method in ("linear", "lower", "higher", "midpoint", "nearest", "hazen"):
            yield f"np.{name}(v, {q}, method='{method}')"
            yield f"np.{name}(i, {q}, 0, method='{method}')"
    yield from ("v.argpartition(2)[2]", "v.argsort()", "x.argsort(axis=0)", "x.argsort(1)")


TEXTS = {
    "elementwise": [*elementwise()],
    "orders": [*orders()],
    "statistics": [*statistics()],
    "arrangements": [*arrangements()],
    "creations": [*creations()],
    "polynomials": [*polynomials()],
    "products": [*products()],
    "functional": [*functional()],
}
