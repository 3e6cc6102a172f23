// A decimal number to the nearest float, ties to even, in one rounding.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "json_floats.h"
#include "json_powers.h"

namespace tensorwire {

constexpr uint64_t kUnsure = UINT64_MAX;

// The bits, without sign, of the float nearest to digits * 10^exponent; or kUnsure where 128 bits
// of the power of ten do not decide (ties among them), and for what is not a normal number. Daniel
// Lemire's observation: they nearly always decide, and mostly the upper 64 of them do.
template <JsonKind kKind>
inline uint64_t nearest_float(uint64_t digits, int64_t exponent) {
  constexpr FloatForm form = kFloatForms[kKind];
  if (exponent < kLeastPower || exponent > kMostPower || digits == 0) [[unlikely]]
    return digits ? kUnsure : 0;
  const int q = static_cast<int>(exponent), left = std::countl_zero(digits);
  const Power& power = power_of_10(q);
  const uint64_t w = digits << left;
  uint128 product = uint128{w} * power.hi;  // cut off: the true one is more by less than `w`
  int high, drop;
  uint64_t upper;
  const auto is_unclear = [&](uint64_t by) {  // whether it may be at or beyond the middle between
                                              // two floats, and may not
    upper = static_cast<uint64_t>(product >> 64);
    high = static_cast<int>(upper >> 63);
    drop = 62 - form.mantissa + high;  // bits to be rounded away
    const uint64_t middle = uint64_t{1} << (drop - 1), rest = upper & (2 * middle - 1),
                   lower = static_cast<uint64_t>(product);
    return rest - middle + 1 <= 1 && (rest == middle ? lower < by : lower >= -by);
  };
  if (is_unclear(w)) [[unlikely]] {
    product += static_cast<uint64_t>(
        uint128{w} * power.lo >>
        64);  // now by less than 2: what is cut off here, and of the power itself
    if (is_unclear(2)) return kUnsure;
  }
  const int64_t biased = int64_t{log2_of_power10(q)} + 63 - left + high + form.bias;
  const uint64_t bits = (static_cast<uint64_t>(biased - 1) << form.mantissa) + (upper >> drop) +
                        (upper >> (drop - 1) & 1);  // a carry goes where it should
  return biased < 1 || bits > form.most ? kUnsure : bits;
}

// The same for the text of any number (without sign), however long; past the largest float the bits
// of infinity.
uint64_t nearest_float_exact(const FloatForm& form, const uint8_t* text, size_t size);

}  // namespace tensorwire
