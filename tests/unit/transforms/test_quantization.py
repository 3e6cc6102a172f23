"""Quantization: the promised bound in exact arithmetic, what is refused, and what stays in memory."""

import math
import pickle
import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.testing import strategies as tws
from tensorwire.transforms import quantization as qz

FLOATS = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in qz.FLOATS}
AFFINE = [name for name, scheme in qz.SCHEMES.items() if scheme.affine]
CASTS = [name for name, scheme in qz.SCHEMES.items() if not scheme.affine]
# Significant bits, and the exponent of the smallest number.
GRIDS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}
GRIDS |= {"float8_e4m3fn": (4, -9), "float8_e5m2": (3, -16)}


def ulp(value, dtype):
    """The distance of neighbours of a dtype at a number."""
    bits, lowest = GRIDS[dtype]
    return Fraction(2) ** max(math.frexp(float(value))[1] - bits, lowest)


def wide(array):
    with np.errstate(all="ignore"):  # ml_dtypes tells the world of signalling NaNs
        return array.astype(np.float64)


def slices(array, axis):
    return (
        [array.reshape(-1)]
        if axis is None
        else [part.reshape(-1) for part in np.moveaxis(array, axis, 0)]
    )


def check_bound(x, scheme, axis=None, nonfinite="raise"):
    """Codes and bound in rational numbers, with nothing of ours but the formula."""
    quantized = qz.quantize(x, scheme, axis, nonfinite)
    back = qz.dequantize(quantized)
    assert (back.dtype, back.shape) == (x.dtype, x.shape)
    dtype, (lowest, highest) = (
        quantized.original,
        (int(qz.SCHEMES[scheme].lowest), int(qz.SCHEMES[scheme].highest)),
    )
    scales, zeros = quantized.scale.reshape(-1).tolist(), quantized.zero_point.reshape(-1).tolist()
    parts = zip(
        slices(x, axis),
        slices(back, axis),
        slices(quantized.codes, axis),
        scales,
        zeros,
        strict=True,
    )
    for values, results, codes, scale, zero in parts:
        assert scale > 0
        if len(values) and (values == values[0]).all():
            assert (results == values[0]).all()
        for value, result, code in zip(
            values.tolist(), results.tolist(), codes.astype(int).tolist(), strict=True
        ):
            most = ulp(max(abs(value), abs(result)), dtype)
            error = abs(Fraction(value) - Fraction(result))
            assert error <= Fraction(scale) / 2 + most * Fraction(3 if dtype == "float64" else 1, 2)
            assert value != 0 or result == 0
            ratio = Fraction(value) / Fraction(scale)
            if dtype != "float64" and abs(ratio) < 1 << 27:
                assert code == min(max(round(ratio) + zero, lowest), highest)
    return quantized, back


def finite(dtype, shape):
    """Random bits, so all magnitudes and subnormals; or numbers close to each other; or both ends
    of the range.
    """
    kind, largest = FLOATS[dtype], float(ml_dtypes.finfo(FLOATS[dtype]).max)
    bits = tws.arrays(dtype, shape).map(
        lambda x: np.where(np.isfinite(wide(x)), x, np.zeros_like(x))
    )
    unit = st.lists(st.floats(-1, 1), min_size=math.prod(shape), max_size=math.prod(shape))
    powers = st.integers(GRIDS[dtype][1], math.frexp(largest)[1] - 1)

    def line(args):
        numbers, offset, power = args
        with np.errstate(all="ignore"):
            made = (
                ((np.array(numbers) + offset) * math.ldexp(1.0, power))
                .clip(-largest, largest)
                .astype(kind)
            )
        return np.where(np.isfinite(made), made, np.zeros_like(made)).reshape(shape)

    lines = st.tuples(unit, st.sampled_from([0.0, 0.0, 1.0, -3.0, 1e3, 1e6, -1e15]), powers).map(
        line
    )
    numbers = st.sampled_from([-largest, largest, 0.0, largest / 2, -largest / 510])
    ends = st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda x: np.array(x).astype(kind).reshape(shape)
    )
    return st.one_of(bits, lines, ends)


@st.composite
def cases(draw):
    dtype, shape = draw(st.sampled_from(qz.FLOATS)), draw(tws.shapes(3, 5))
    axis = draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
    return draw(finite(dtype, shape)), axis


class TestAffine:
    @given(cases(), st.sampled_from(AFFINE))
    @example((np.array([-3e38, 3e38, 0, 1], np.float32), None), "int8")
    @example((np.array([-1.7e308, 1.7e308, 0, 1]), None), "int4")
    @example((np.array([1e300, np.nextafter(1e300, 2e300)]), None), "uint8")
    @example((np.array([5e-324, 1e-323, 0]), None), "int8")
    @example((np.array([1e-45, 3e-45, 0], np.float32), None), "uint8")
    @example((np.array([65504, -65504, 1], np.float16), None), "int8")
    def test_bound(self, case, scheme):
        check_bound(case[0], scheme, case[1])

    @given(cases(), st.sampled_from(AFFINE))
    def test_dequantized_tensors_have_codes_too(self, case, scheme):
        """Twice through is bounded as once: what comes back is an ordinary tensor, at the very ends
        of the dtype too.
        """
        _, back = check_bound(case[0], scheme, case[1])
        check_bound(back, scheme, case[1])

    @pytest.mark.parametrize("dtype", qz.FLOATS)
    @pytest.mark.parametrize("offset", [0, 1, 100, 1e4, 1e7, 1e12, 1e14])
    def test_narrow_ranges_far_from_zero(self, dtype, offset):
        """Where the float64 quotient itself is in doubt by parts of a code."""
        random = np.random.default_rng(0)
        for power in (-800, -140, -20, 0, 90, 900):
            with np.errstate(all="ignore"):
                x = ((random.standard_normal(300) + offset) * math.ldexp(1.0, power)).astype(
                    FLOATS[dtype]
                )
            if np.isfinite(wide(x)).all():
                check_bound(x, "uint8")

    @pytest.mark.parametrize("scheme", AFFINE)
    def test_every_tie(self, scheme):
        """Halves between all codes: half to even, and the ends that fall outside lose half a scale."""
        wide = int(qz.SCHEMES[scheme].highest - qz.SCHEMES[scheme].lowest)
        for shift in (0, 0.5, -0.5, 3, -wide / 2, 1000.5):
            x = (np.arange(2 * wide + 1) / 2 + shift).astype(np.float32)
            quantized, back = check_bound(x, scheme)
            assert quantized.scale == 1 and np.abs(back - x).max() <= 0.5

    def test_plain_ranges_have_plain_grids(self):
        for scheme, low in (("uint8", 0), ("int8", -128), ("int4", -8)):
            steps = int(qz.SCHEMES[scheme].highest - qz.SCHEMES[scheme].lowest)
            x = np.arange(low, low + steps + 1, dtype=np.float32)
            quantized = qz.quantize(x, scheme)
            assert (quantized.scale, quantized.zero_point) == (1, 0)
            assert (
                quantized.codes.astype(int).tolist()
                == x.tolist()
                == qz.dequantize(quantized).tolist()
            )
        assert qz.quantize(np.array([-1, 1], np.float32), "int8").zero_point == 0

    def test_range_is_not_widened(self):
        x = np.linspace(1000, 1001, 300)
        assert np.abs(qz.dequantize(qz.quantize(x, "int8")) - x).max() < 1 / 500

    @pytest.mark.parametrize("dtype", qz.FLOATS)
    @pytest.mark.parametrize("scheme", AFFINE)
    def test_constants(self, dtype, scheme):
        kind = FLOATS[dtype]
        tiny, largest = (
            float(ml_dtypes.finfo(kind).smallest_subnormal),
            float(ml_dtypes.finfo(kind).max),
        )
        for value in (0, 1, -1, 0.1, -0.3, tiny, -tiny, largest, -largest):
            x = np.full((2, 3), value, kind)
            assert (qz.dequantize(qz.quantize(x, scheme)) == x).all()
            assert (qz.dequantize(qz.quantize(x, scheme, axis=1)) == x).all()

    def test_the_sign_of_zero_is_lost(self):
        assert not np.signbit(qz.dequantize(qz.quantize(np.array([-0.0, 1]), "int8"))[0])

    def test_what_it_is_made_of(self):
        x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
        quantized = qz.quantize(x, "int4", axis=-2)
        assert (quantized.axis, quantized.scheme, quantized.original, quantized.shape) == (
            1,
            "int4",
            "float32",
            (2, 3, 2),
        )
        assert quantized.codes.dtype == ml_dtypes.int4 and quantized.codes.view(np.uint8).max() < 16
        assert quantized.scale.dtype == np.float32 and quantized.zero_point.dtype == np.int64
        assert (
            quantized.scale.shape == quantized.zero_point.shape == (3,)
            and quantized.nbytes == 12 + 12 + 24
        )
        assert qz.quantize(x.astype(np.float64), "int4").scale.dtype == np.float64
        again = pickle.loads(pickle.dumps(quantized))
        assert tw.equal(qz.dequantize(again), qz.dequantize(quantized))
        with pytest.raises(AttributeError):
            quantized.axis = 2

    @pytest.mark.parametrize("scheme", qz.SCHEMES)
    @pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,)])
    def test_small_shapes(self, scheme, shape):
        x = np.full(shape, 0.25, np.float32)
        for axis in (None, *range(len(shape))):
            assert tw.equal(qz.dequantize(qz.quantize(x, scheme, axis)), x)
        assert tw.equal(
            qz.dequantize(qz.quantize(np.float32(0.25), scheme)), np.array(0.25, np.float32)
        )

    def test_layouts(self):
        x = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
        wanted = qz.dequantize(qz.quantize(x, "int8", 0))
        assert tw.equal(qz.dequantize(qz.quantize(np.asfortranarray(x), "int8", 0)), wanted)
        assert tw.equal(qz.dequantize(qz.quantize(x.astype(">f4"), "int8", 0)), wanted)
        assert tw.equal(qz.dequantize(qz.quantize(x.T, "int8", 1)), np.ascontiguousarray(wanted.T))
        assert x.flags.writeable and tw.equal(x, x.copy())


class TestRows:
    @given(st.data(), st.sampled_from(AFFINE))
    def test_rows_are_quantized_alone(self, data, scheme):
        dtype = data.draw(st.sampled_from(qz.FLOATS))
        x = data.draw(finite(dtype, (data.draw(st.integers(0, 4)), *data.draw(tws.shapes(2, 4)))))
        rows = qz.quantize_rows(x, scheme)
        assert rows.scale.shape == rows.zero_point.shape == (len(x),)
        for i, row in enumerate(x):
            alone = qz.quantize(np.asarray(row), scheme)
            assert tw.equal(alone.codes, rows.codes[i])
            assert (alone.scale, alone.zero_point) == (rows.scale[i], rows.zero_point[i])

    def test_casts_and_scalars(self):
        assert qz.quantize_rows(np.ones((2, 3)), "float16").scale is None
        with pytest.raises(tw.EncodeError, match="axis 0 is out of range"):
            qz.quantize_rows(np.array(1.0), "int8")


class TestCasts:
    @given(cases(), st.sampled_from(CASTS))
    def test_nearest(self, case, scheme):
        """Within half an ulp of the scheme, in exact arithmetic: rounded once, whatever lies
        between.
        """
        x, _ = case
        quantized = qz.quantize(x, scheme, nonfinite="clip")
        assert (
            quantized.codes.dtype == qz.SCHEMES[scheme].dtype
            and (quantized.scale, quantized.zero_point, quantized.axis) == (None,) * 3
        )
        largest = Fraction(qz.SCHEMES[scheme].highest)
        back = qz.dequantize(quantized)
        assert (back.dtype, back.shape) == (x.dtype, x.shape)
        for value, result in zip(x.reshape(-1).tolist(), back.reshape(-1).tolist(), strict=True):
            clipped = min(max(Fraction(value), -largest), largest)
            # the end of the scheme may be no number of the dtype
            own = ulp(result, quantized.original) / 2 if clipped != value else 0
            assert abs(clipped - Fraction(result)) <= ulp(clipped, scheme) / 2 + own

    @pytest.mark.parametrize("scheme", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
    def test_no_double_rounding(self, scheme):
        bits = GRIDS[scheme][0]
        for sign in (1, -1):
            for dtype, near in (
                (np.float64, 2.0**-40),
                (np.float64, 2.0**-52),
                (np.float32, 2.0**-23),
            ):
                for cut, up in ((near, 1), (-near, 0), (0, 0)):
                    x = np.array([sign * (1 + 2.0**-bits + cut)], dtype)
                    assert qz.dequantize(qz.quantize(x, scheme)) == sign * (
                        1 + up * 2.0 ** (1 - bits)
                    )

    @pytest.mark.parametrize("scheme", CASTS)
    def test_every_code_is_itself(self, scheme):
        kind = qz.SCHEMES[scheme].dtype
        codes = np.arange(1 << (8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
        numbers = wide(codes)
        for dtype in (np.float32, np.float64):
            with np.errstate(all="ignore"):
                x = numbers.astype(dtype)
            again = qz.quantize(x, scheme).codes
            assert tw.equal(codes[~np.isnan(numbers)], again[~np.isnan(numbers)])
            assert np.isnan(wide(again)[np.isnan(numbers)]).all()

    @pytest.mark.parametrize(("scheme", "fits", "not_fits"), [
        ("float16", 65519.0, 65520.0), ("bfloat16", 3.394e38, 3.397e38), ("float8_e4m3fn", 464.0, 465.0), ("float8_e5m2", 61439.0, 61440.0),
    ])  # fmt: skip
    def test_too_large(self, scheme, fits, not_fits):
        largest = qz.SCHEMES[scheme].highest
        for dtype in (np.float32, np.float64):
            assert qz.dequantize(qz.quantize(np.array([fits, -fits], dtype), scheme)).tolist() == [
                largest,
                -largest,
            ]
            with pytest.raises(
                tw.EncodeError,
                match=rf"x\[0, 1\] is .*largest finite number in {scheme} is {largest:g}".replace(
                    "+", r"\+"
                ),
            ):
                qz.quantize(np.array([[0, not_fits]], dtype), scheme)
            for way in ("clip", "zero"):
                back = qz.dequantize(
                    qz.quantize(
                        np.array([-not_fits, not_fits, np.inf], dtype), scheme, nonfinite=way
                    )
                )
                assert back.tolist() == [-largest, largest, largest]

    def test_nonfinite(self):
        x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
        for scheme in ("float16", "bfloat16", "float8_e5m2"):
            assert np.array_equal(qz.dequantize(qz.quantize(x, scheme)), x, equal_nan=True)
        with pytest.raises(tw.EncodeError, match=r"x\[1\] is inf"):
            qz.quantize(x, "float8_e4m3fn")
        assert np.isnan(qz.dequantize(qz.quantize(x[:1], "float8_e4m3fn")))
        assert np.array_equal(
            qz.dequantize(qz.quantize(x, "float8_e4m3fn", nonfinite="clip")),
            [np.nan, 448, -448, 1],
            equal_nan=True,
        )
        assert qz.dequantize(qz.quantize(x, "float16", nonfinite="zero")).tolist() == [
            0,
            65504,
            -65504,
            1,
        ]

    def test_bfloat16_of_float16(self):
        """65504 becomes 65536 in bfloat16, which float16 does not have."""
        x = np.array([65504, -65504, np.inf, np.nan], np.float16)
        assert np.array_equal(qz.dequantize(qz.quantize(x, "bfloat16")), x, equal_nan=True)


class TestNonfinite:
    x = np.array([[1, np.inf, 3], [-np.inf, 5, 5], [0, 1, 2]], np.float32)

    @pytest.mark.parametrize("scheme", AFFINE)
    def test_refused(self, scheme):
        with pytest.raises(
            tw.EncodeError,
            match=rf"x\[0, 1\] is inf, which {scheme} cannot represent; pass nonfinite='clip'",
        ):
            qz.quantize(self.x, scheme)
        with pytest.raises(tw.EncodeError, match=r"x\[\(\)\] is nan, .* nonfinite='zero'"):
            qz.quantize(np.array(np.nan), scheme)
        with pytest.raises(tw.EncodeError, match=r"x\[1\] is nan"):
            qz.quantize(np.array([np.inf, np.nan, 1]), scheme, nonfinite="clip")

    @pytest.mark.parametrize("way", ["clip", "zero"])
    def test_clip(self, way):
        finite = np.array([[1, 3, 3], [5, 5, 5], [0, 1, 2]], np.float32)
        clipped, wanted = qz.quantize(self.x, "int8", 0, way), qz.quantize(finite, "int8", 0)
        assert tw.equal(clipped.codes, wanted.codes) and tw.equal(clipped.scale, wanted.scale)
        assert qz.dequantize(clipped)[1].tolist() == [5, 5, 5]

    def test_zero(self):
        assert qz.dequantize(
            qz.quantize(np.array([np.nan, 255, 254, np.inf], np.float32), "uint8", None, "zero")
        ).tolist() == [
            0,
            255,
            254,
            255,
        ]
        assert qz.dequantize(qz.quantize(np.array([np.nan]), "uint8", None, "zero")).tolist() == [0]

    def test_nothing_to_clip_to(self):
        with pytest.raises(tw.EncodeError, match="index 1 of the axis has no finite value"):
            qz.quantize(np.array([[1, 2], [np.inf, np.inf]]), "int8", 0, "clip")
        with pytest.raises(tw.EncodeError, match="the tensor has no finite value"):
            qz.quantize(np.array(np.inf), "int8", nonfinite="zero")

    @given(st.data(), st.sampled_from(list(qz.SCHEMES)), st.sampled_from(["clip", "zero"]))
    def test_any_bits(self, data, scheme, way):
        """With "zero" only a slice of infinities is refused, with "clip" also NaN; what comes back
        is finite, but for NaN in a cast.
        """
        dtype = data.draw(st.sampled_from(qz.FLOATS))
        x = data.draw(tws.arrays(dtype, data.draw(tws.shapes(3, 3))))
        axis = data.draw(st.none() | st.integers(0, x.ndim - 1)) if x.ndim else None
        try:
            back = qz.dequantize(qz.quantize(x, scheme, axis, way))
        except tw.EncodeError as error:
            assert "infinities" in str(error) or (way == "clip" and "nan" in str(error))
            assume(False)
        assert (np.isfinite(wide(back)) | (np.isnan(wide(x)) & (way == "clip"))).all()


class TestBlocks:
    @pytest.mark.parametrize("scheme", ["int8", "int4", "float16", "float8_e4m3fn"])
    @pytest.mark.parametrize("axis", [None, 0, 1, 2])
    @pytest.mark.parametrize("block", [1, 2, 5, 7, 12, 30, 100])
    def test_any_size_gives_the_same(self, monkeypatch, scheme, axis, block):
        x = np.random.default_rng(1).standard_normal((3, 5, 4)).astype(np.float32)
        x[1, 2, 3] = np.inf
        whole, report = (
            qz.quantize(x, scheme, axis, "clip"),
            qz.quantization_error(x, scheme, axis, "clip"),
        )
        values = qz.dequantize(whole)
        monkeypatch.setattr(qz, "BLOCK", block)
        parts = qz.quantize(x, scheme, axis, "clip")
        assert tw.equal(parts.codes, whole.codes) and tw.equal(qz.dequantize(parts), values)
        if whole.scale is not None:
            assert tw.equal(parts.scale, whole.scale) and tw.equal(
                parts.zero_point, whole.zero_point
            )
        again = qz.quantization_error(x, scheme, axis, "clip")
        assert (again.max_abs, again.max_relative, again.ratio) == (
            report.max_abs,
            report.max_relative,
            report.ratio,
        )
        assert again.rmse == pytest.approx(report.rmse) and again.mean_abs == pytest.approx(
            report.mean_abs
        )
        x[2, 4, 1] = np.nan
        if qz.SCHEMES[scheme].affine:
            with pytest.raises(tw.EncodeError, match=r"x\[2, 4, 1\] is nan"):
                qz.quantize(x, scheme, axis, "clip")

    @pytest.mark.large
    @pytest.mark.parametrize("scheme", qz.SCHEMES)
    def test_memory(self, scheme):
        x = np.ones((1 << 10, 1 << 13), np.float32)  # 32 MiB
        few = 8 << 20
        for axis in (None, 0, 1):
            assert peak(lambda axis=axis: qz.quantization_error(x, scheme, axis)) < few
            assert (
                peak(lambda axis=axis: qz.quantize(x, scheme, axis))
                < x.size * qz.SCHEMES[scheme].dtype.itemsize + few
            )
        quantized = qz.quantize(x, scheme)
        assert peak(lambda: qz.dequantize(quantized)) < x.nbytes + few


def peak(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestErrorReport:
    @given(cases(), st.sampled_from(list(qz.SCHEMES)))
    def test_is_the_error(self, case, scheme):
        x, axis = case
        report = qz.quantization_error(x, scheme, axis, "clip")
        quantized = qz.quantize(x, scheme, axis, "clip")
        error = [
            abs(Fraction(a) - Fraction(b))
            for a, b in zip(
                x.reshape(-1).tolist(), qz.dequantize(quantized).reshape(-1).tolist(), strict=True
            )
        ]
        count, worst = max(len(error), 1), max(error, default=Fraction(0))
        assert report.max_abs == pytest.approx(float(worst), rel=1e-12, abs=0)
        assert report.mean_abs == pytest.approx(float(sum(error) / count), rel=1e-9, abs=1e-323)
        unit = worst or 1
        square = math.sqrt(sum((e / unit) ** 2 for e in error) / count)
        assert report.rmse == pytest.approx(float(unit) * square, rel=1e-9, abs=1e-323)
        assert report.ratio == (x.nbytes / quantized.nbytes if quantized.nbytes else 1)

    def test_figures(self):
        report = qz.quantization_error(np.array([0, 0.75, 10.25, 255], np.float32), "uint8")
        assert report == qz.ErrorReport(0.25, 0.125, math.sqrt(0.125 / 4), 1 / 3, 16 / 16)
        assert qz.quantization_error(np.array([np.nan, np.inf, 1]), "float16") == qz.ErrorReport(
            0, 0, 0, 0, 4
        )
        assert qz.quantization_error(np.zeros((0, 3)), "int8", 1).ratio == 0


class TestRefused:
    @pytest.mark.parametrize(
        "x",
        [
            np.arange(3),
            np.ones(2, bool),
            np.ones(2, complex),
            np.zeros(2, ml_dtypes.float8_e5m2),
            np.array(["a"]),
        ],
    )
    def test_dtypes(self, x):
        with pytest.raises(tw.EncodeError):
            qz.quantize(x, "int8")

    def test_arguments(self):
        x = np.ones(3, np.float32)
        with pytest.raises(tw.EncodeError, match="did you mean 'int8'"):
            qz.quantize(x, "int88")
        with pytest.raises(tw.UsageError, match="did you mean 'clip'"):
            qz.quantize(x, "int8", nonfinite="clips")
        with pytest.raises(tw.EncodeError, match=r"axis 1 is out of range for shape \(3,\)"):
            qz.quantize(x, "int8", 1)
        with pytest.raises(tw.EncodeError, match="takes a dense tensor"):
            qz.quantize(tw.Strings.of(["a"]), "int8")
        assert qz.quantize([1.0], "int8").original == "float64"

    good = {"codes": np.zeros((2, 3), np.int8), "scheme": "int8", "axis": 0, "original": "float32"}
    good |= {"scale": np.ones(2), "zero_point": np.zeros(2, np.int64)}

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"scheme": "int3"}, "unknown quantization scheme"),
            ({"scheme": "uint8"}, "codes .* must be a uint8 array, not int8"),
            ({"codes": [1]}, "must be a int8 array, not list"),
            ({"original": "int8"}, "original"),
            ({"original": None}, "original"),
            ({"axis": 2}, "axis 2"),
            ({"axis": -1}, "axis -1"),
            ({"axis": None}, r"shape \(\)"),
            ({"axis": 1}, r"shape \(3,\)"),
            ({"scale": None}, "not NoneType"),
            ({"scale": np.ones(2, np.float16)}, "not float16"),
            ({"scale": np.array([1, np.nan])}, "finite"),
            ({"scale": np.array([1, -1.0])}, "greater than 0"),
            ({"zero_point": np.zeros(2, np.int32)}, "int64"),
            ({"zero_point": np.array([0, -(1 << 63)])}, r"2\*\*53"),
            (
                {"scheme": "float16", "codes": np.zeros(2, np.float16)},
                "must not have an axis, a scale",
            ),
        ],
    )
    def test_parts(self, changes, why):
        qz.check(tw.Quantized(**self.good))
        for blame in (tw.EncodeError, tw.DecodeError):
            with pytest.raises(blame, match=why):
                qz.dequantize(tw.Quantized(**self.good | changes), blame)

    def test_foreign_parts_never_overflow(self):
        """Whatever a file says, as long as the parts fit: finite numbers come back."""
        for zero in (1 << 53, -(1 << 53)):
            for dtype in qz.FLOATS:
                parts = self.good | {
                    "scale": np.array([1e308, 5e-324]),
                    "zero_point": np.array([zero, zero]),
                    "original": dtype,
                }
                assert np.isfinite(qz.dequantize(tw.Quantized(**parts))).all()
