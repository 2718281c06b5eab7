"""Samples of the matrix products and what is built on them."""

from __future__ import annotations

from .table import COMPLEX, FLOAT, FULL, INTEGER, S, entry, t

ALL = (*FLOAT, *INTEGER, *COMPLEX)

ENTRIES = {
    "bmm": entry(
        S(t(2, 3, 4), t(2, 4, 5)),
        S(t(1, 37, 17), t(1, 17, 19)),
        S(t(2, 0, 3), t(2, 3, 4)),
        S(t(2, 3, 0), t(2, 0, 4)),
        S(t(0, 2, 3), t(0, 3, 4)),
        dtypes=ALL,
    ),
    "matmul": entry(
        S(t(3, 4), t(4, 5)),
        S(t(4), t(4)),
        S(t(4), t(4, 5)),
        S(t(3, 4), t(4)),
        S(t(2, 3, 4), t(4, 5)),
        S(t(2, 3, 4), t(4)),
        S(t(2, 3, 4), t(2, 4, 5)),
        S(t(2, 1, 3, 4), t(5, 4, 2)),
        S(t(4), t(2, 4, 3)),
        S(t(3, 4), t(2, 4, 5)),
        S(t(33, 40), t(40, 65)),
        dtypes=ALL,
    ),
    "mm": entry(S(t(3, 4), t(4, 5)), S(t(1, 7), t(7, 1)), S(t(0, 4), t(4, 5)), S(t(33, 40), t(40, 65)), dtypes=ALL),
    "mv": entry(S(t(3, 4), t(4)), S(t(37, 41), t(41)), dtypes=ALL),
    "dot": entry(S(t(4), t(4)), S(t(0), t(0)), S(t(137), t(137)), dtypes=ALL),
    "vdot": entry(S(t(4), t(4)), dtypes=ALL),
    "outer": entry(S(t(3), t(4)), S(t(0), t(4)), dtypes=ALL),
    "addmm": entry(
        S(t(3, 5), t(3, 4), t(4, 5)),
        S(t(5), t(3, 4), t(4, 5)),
        S(t(3, 5), t(3, 4), t(4, 5), beta=0.5, alpha=2.0).only(*FLOAT),
        S(t(1, 5), t(3, 4), t(4, 5), beta=2, alpha=3),
        S(t(), t(3, 4), t(4, 5)),
        dtypes=ALL,
    ),
    "addbmm": entry(S(t(3, 5), t(2, 3, 4), t(2, 4, 5)), S(t(5), t(2, 3, 4), t(2, 4, 5), beta=2, alpha=3), dtypes=ALL),
    "baddbmm": entry(
        S(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)), S(t(5), t(2, 3, 4), t(2, 4, 5), beta=2, alpha=3), dtypes=ALL
    ),
    "addmv": entry(S(t(3), t(3, 4), t(4)), S(t(3), t(3, 4), t(4), beta=2, alpha=3), dtypes=ALL),
    "addr": entry(S(t(3, 4), t(3), t(4)), S(t(4), t(3), t(4), beta=2, alpha=3), dtypes=ALL),
    "linear": entry(
        S(t(3, 4), t(5, 4)),
        S(t(3, 4), t(5, 4), t(5)),
        S(t(2, 3, 4), t(5, 4), t(5)),
        S(t(4), t(5, 4), t(5)),
        S(t(33, 40), t(65, 40), t(65)),
    ),
    "einsum": entry(
        S("ij,jk->ik", [t(3, 4), t(4, 5)]),
        S("bij,bjk->bik", [t(2, 3, 4), t(2, 4, 5)]),
        S("ij->ji", [t(3, 4)]),
        S("ij->", [t(3, 4)]),
        S("ii->i", [t(3, 3)]),
        S("ii->", [t(3, 3)]),
        S("i,j->ij", [t(3), t(4)]),
        S("i,i->", [t(3), t(3)]),
        S("bhqd,bhkd->bhqk", [t(2, 2, 3, 4), t(2, 2, 5, 4)]),
        S("ijk,kl->jl", [t(2, 3, 4), t(4, 5)]),
        S("...ij,...jk->...ik", [t(2, 3, 4), t(4, 5)]),
        S("ij,jk,kl->il", [t(2, 3), t(3, 4), t(4, 5)]),
        S("ij,ij->ij", [t(3, 4), t(3, 4)]),
        S("ab,cd", [t(2, 3), t(4, 5)]),
        S("ba", [t(2, 3)]),
        S("ij,j", [t(3, 4), t(4)]),
        dtypes=(*FLOAT, "i64", *COMPLEX),
    ),
    "tensordot": entry(S(t(3, 4, 5), t(4, 5, 6), ((1, 2), (0, 1))), S(t(3, 4), t(5, 3), ((0,), (1,)))),
    "kron": entry(S(t(2, 3), t(4, 5)), S(t(2), t(3, 4)), dtypes=ALL),
    "scaled_dot_product_attention": entry(
        S(t(2, 2, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 6)),
        S(t(2, 3, 4), t(2, 3, 4), t(2, 3, 4), None, 0.0, True),
        S(t(2, 2, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 4), t(3, 5)),
        S(t(2, 3, 4), t(2, 5, 4), t(2, 5, 4), scale=0.3),
        S(t(2, 2, 5, 4), t(2, 2, 5, 4), t(2, 2, 5, 4), is_causal=True),
    ),
    "_scaled_dot_product_flash_attention_for_cpu": entry(
        S(t(2, 2, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 4)),
        S(t(2, 2, 5, 4), t(2, 2, 5, 4), t(2, 2, 5, 4), 0.0, True),
        S(t(2, 4, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 4)),
        S(
            t(2, 2, 3, 4),
            t(2, 2, 5, 4),
            t(2, 2, 5, 4),
            attn_mask=t(2, 2, 3, 5, differentiate=False),
            scale=0.3,
        ),
        outputs=1,
        dtypes=FULL,
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": entry(
        S(
            t(2, 2, 3, 4),
            t(2, 2, 3, 4),
            t(2, 2, 5, 4),
            t(2, 2, 5, 4),
            t(2, 2, 3, 4),
            t(2, 2, 3, low=3.0, high=9.0),
            0.0,
            False,
        ),
        dtypes=FULL,
        derivative=False,
    ),
}
