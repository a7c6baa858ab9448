"""Functions of float32 in any number of lanes, where TVM would call the C library once for each lane.

Range reductions and polynomials are those of Cephes (S. Moshier, "Methods and Programs for Mathematical Functions",
1989). erf is by minimax fits of our own: of erf(x) / x - 1 below 0.9, of log(erfc(x)) from there to 4. NaN, infinities,
denormal numbers and the sign of zero come out as in torch.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, tirx

from bridge.backends.tvm.schedule.integers import cast

Bind = Callable[[Any], Any]
"""Gives an expression a name, so that it is computed once."""


class Lane:
    """Arithmetic on expressions of one width, each intermediate result bound."""

    def __init__(self, like: Any, bind: Bind) -> None:
        text = str(like.ty.dtype)
        self.width = int(text.rsplit("x", 1)[1]) if "x" in text else 1
        self.bind = bind

    def real(self, value: float) -> Any:
        return self._spread(tirx.FloatImm("float32", value))

    def whole(self, value: int) -> Any:
        return self._spread(tirx.IntImm("int32", value))

    def type(self, dtype: str) -> str:
        return dtype if self.width == 1 else f"{dtype}x{self.width}"

    def call(self, name: str, dtype: str, *arguments: Any) -> Any:
        return ir.Call(ir.Op.get(f"tirx.{name}"), list(arguments), ret_ty=self.type(dtype))

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return tirx.Select(condition, then, otherwise)

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """Horner's rule, highest power first."""
        total = self.real(coefficients[0])
        for c in coefficients[1:]:
            total = total * x + self.real(c)
        return total

    def bits(self, x: Any) -> Any:
        return self.call("reinterpret", "int32", x)

    def from_bits(self, x: Any) -> Any:
        return self.call("reinterpret", "float32", x)

    def power_of_two(self, n: Any) -> Any:
        """2 to a whole number from -126 to 127."""
        return self.from_bits(self.bitwise(tirx.LShift, n + self.whole(127), self.whole(23)))

    def bitwise(self, operator: Any, a: Any, b: Any) -> Any:
        return operator(a, b)

    def is_nan(self, x: Any) -> Any:
        return ir.Call(ir.Op.get("tirx.isnan"), [x], ret_ty=self.type("bool"))

    def magnitude(self, x: Any) -> Any:
        return self.from_bits(self.bitwise(tirx.BitwiseAnd, self.bits(x), self.whole(0x7FFFFFFF)))

    def with_sign_of(self, magnitude: Any, x: Any) -> Any:
        sign = self.bitwise(tirx.BitwiseAnd, self.bits(x), self.whole(-0x80000000))
        return self.from_bits(self.bitwise(tirx.BitwiseOr, self.bits(magnitude), sign))

    def _spread(self, value: Any) -> Any:
        return value if self.width == 1 else tirx.Broadcast(value, self.width)


def rounded(x: Any, bind: Bind) -> Any:
    """A bfloat16 that is one before it lies in memory, by rounding its bits in float32 to the nearest even.

    TVM computes a chain of bfloat16 operations in float32 and leaves out what would round between them, where eager
    rounds after each: whatever compares the result with one of eager's then finds it different.
    """
    wide = cast(x, "float32")
    lane = Lane(wide, bind)
    bits = bind(lane.bits(bind(wide)))
    odd = lane.bitwise(tirx.BitwiseAnd, lane.bitwise(tirx.RShift, bits, lane.whole(16)), lane.whole(1))
    nearest = lane.bitwise(tirx.BitwiseAnd, bits + odd + lane.whole(0x7FFF), lane.whole(-0x10000))
    return cast(lane.choose(lane.is_nan(wide), wide, lane.from_bits(nearest)), "bfloat16")


ROUND = 12582912.0
"""1.5 · 2**23: added to a small number it leaves that number, rounded, in the low bits."""


def exp(x: Any, bind: Bind) -> Any:
    """e to the x: x = n ln 2 + r, a polynomial in r, and 2 to the n in two steps so that denormals come out.

    A NaN fails both comparisons and stays one.
    """
    lane = Lane(x, bind)
    low = lane.choose(x < lane.real(-104.0), lane.real(-104.0), x)
    mantissa, n = _reduced(lane, bind(lane.choose(low > lane.real(89.0), lane.real(89.0), low)))
    half = bind(lane.bitwise(tirx.RShift, n, lane.whole(1)))
    return mantissa * lane.power_of_two(half) * lane.power_of_two(n - half)


def _reduced(lane: Lane, x: Any) -> tuple[Any, Any]:
    """m and n with m 2**n = e**x and m between 0.7 and 1.5, for x from -104 to 89."""
    shifted = lane.bind(x * lane.real(1.44269504088896341) + lane.real(ROUND))
    whole = lane.bind(shifted - lane.real(ROUND))
    r = lane.bind(x - whole * lane.real(0.693359375) - whole * lane.real(-2.12194440e-4))
    p = lane.polynomial(
        r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    n = lane.bind(lane.bits(shifted) - lane.whole(0x4B400000))
    return p * r * r + r + lane.real(1.0), n


def log(x: Any, bind: Bind) -> Any:
    """Natural logarithm: x = m 2**e with m between sqrt(1/2) and sqrt(2), a polynomial in m - 1."""
    lane = Lane(x, bind)
    tiny = bind(x < lane.real(1.17549435e-38))
    bits = bind(lane.bits(lane.choose(tiny, x * lane.real(8388608.0), x)))
    raw = lane.bitwise(tirx.BitwiseAnd, lane.bitwise(tirx.RShift, bits, lane.whole(23)), lane.whole(0xFF))
    exponent = tirx.Cast(lane.type("float32"), raw - lane.whole(126))
    exponent = exponent - lane.choose(tiny, lane.real(23.0), lane.real(0.0))
    fraction = lane.bitwise(tirx.BitwiseAnd, bits, lane.whole(0x007FFFFF))
    m = bind(lane.from_bits(lane.bitwise(tirx.BitwiseOr, fraction, lane.whole(0x3F000000))))
    small = bind(m < lane.real(0.707106781186547524))
    exponent = bind(exponent - lane.choose(small, lane.real(1.0), lane.real(0.0)))
    m = bind(lane.choose(small, m + m, m) - lane.real(1.0))
    z = bind(m * m)
    p = lane.polynomial(
        m,
        (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
         2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    )  # fmt: skip
    y = p * m * z + exponent * lane.real(-2.12194440e-4) - z * lane.real(0.5)
    result = m + y + exponent * lane.real(0.693359375)
    result = lane.choose(x < lane.real(0.0), lane.real(float("nan")), result)
    result = lane.choose(tirx.EQ(x, lane.real(0.0)), lane.real(float("-inf")), result)
    return lane.choose(tirx.Or(lane.is_nan(x), tirx.EQ(x, lane.real(float("inf")))), x, result)


def tanh(x: Any, bind: Bind) -> Any:
    """Hyperbolic tangent: a polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) beyond."""
    lane = Lane(x, bind)
    size = bind(lane.magnitude(x))
    z = bind(x * x)
    p = lane.polynomial(
        z, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
    )
    near = p * z * x + x
    far = lane.real(1.0) - lane.real(2.0) / (exp(bind(size + size), bind) + lane.real(1.0))
    return lane.with_sign_of(lane.choose(size < lane.real(0.625), near, far), x)


def sigmoid(x: Any, bind: Bind) -> Any:
    """1 / (1 + exp(-x))."""
    lane = Lane(x, bind)
    return lane.real(1.0) / (lane.real(1.0) + exp(bind(lane.real(0.0) - x), bind))


def erf(x: Any, bind: Bind) -> Any:
    """Error function: a polynomial below 0.9, 1 - exp(a polynomial) beyond, and 1 beyond 4."""
    lane = Lane(x, bind)
    z = bind(x * x)
    near = lane.polynomial(z, ERF_NEAR) * x + x
    size = bind(lane.magnitude(x))
    inside = bind(lane.choose(size > lane.real(4.0), lane.real(4.0), size))
    mantissa, n = _reduced(lane, bind(lane.polynomial(inside, ERF_FAR)))
    far = lane.real(1.0) - mantissa * lane.power_of_two(n)
    return lane.choose(size > lane.real(0.9), lane.with_sign_of(far, x), near)


ERF_NEAR = (-0.00060496986, 0.0050043976, -0.02677403, 0.11282014, -0.37612513, 0.12837911)
ERF_FAR = (0.00019821973, -0.0030654909, 0.022315215, -0.10411368, -0.63697606, -1.1277972, -0.00016644716)

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "tirx.erf": erf,
    "tirx.exp": exp,
    "tirx.log": log,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": tanh,
}
"""Functions of one float32 argument by TVM's name."""

C_FUNCTIONS: Mapping[str, str] = {"tirx.erf": "erf"}
"""What TVM cannot write for LLVM in other types than float32, by the C library's name for float64."""


def written(name: str, dtype: str, arguments: Sequence[Any], bind: Bind) -> Any | None:
    """A function that TVM would not write well, or None for one that it does."""
    if dtype == "float32" and name in FUNCTIONS:
        return FUNCTIONS[name](*(bind(a) for a in arguments), bind=bind)
    if name in C_FUNCTIONS:
        return tirx.call_pure_extern(dtype, C_FUNCTIONS[name], *arguments)
    return None


def one_at_a_time(name: str, dtype: str) -> bool:
    """Whether the function can be written for a single element only."""
    own = dtype == "float32" and name in FUNCTIONS
    return not own and (name in C_FUNCTIONS or name in ("tirx.call_pure_extern", "tirx.call_extern"))
