#include "json_decimal.h"

#include <algorithm>

namespace tensorwire {
namespace {

// Whole numbers of up to 4600 bits, little-endian limbs, as long as they need to be.
class Big {
 public:
  explicit Big(uint64_t value = 0) : size_(value != 0) { limbs_[0] = value; }

  void times_plus(uint64_t factor, uint64_t carry) {
    for (int i = 0; i < size_; i++) {
      const uint128 product = uint128{limbs_[i]} * factor + carry;
      limbs_[i] = static_cast<uint64_t>(product);
      carry = static_cast<uint64_t>(product >> 64);
    }
    if (carry) limbs_[size_++] = carry;
  }

  void times_power_of_10(int64_t n) {
    for (; n >= 19; n -= 19) times_plus(10000000000000000000u, 0);
    for (; n > 0; n--) times_plus(10, 0);
  }

  void shift_left(int bits) {
    if (!size_ || !bits) return;
    const int limbs = bits / 64, rest = bits % 64;
    for (int i = size_ - 1; i >= 0; i--) limbs_[i + limbs] = limbs_[i];
    std::fill_n(limbs_, limbs, 0);
    size_ += limbs;
    if (rest) times_plus(uint64_t{1} << rest, 0);
  }

  int bits() const { return size_ ? 64 * size_ - std::countl_zero(limbs_[size_ - 1]) : 0; }

  bool less(const Big& other) const {
    if (size_ != other.size_) return size_ < other.size_;
    for (int i = size_ - 1; i >= 0; i--)
      if (limbs_[i] != other.limbs_[i]) return limbs_[i] < other.limbs_[i];
    return false;
  }

  void minus(const Big& other) {  // which is not larger
    bool borrow = false;
    for (int i = 0; i < size_; i++) {
      const uint64_t take = i < other.size_ ? other.limbs_[i] : 0, before = limbs_[i];
      limbs_[i] = before - take - borrow;
      borrow = before < take || (before == take && borrow);
    }
    while (size_ && !limbs_[size_ - 1]) size_--;
  }

 private:
  int size_;
  uint64_t limbs_[76];  // 1160 digits, and the bits of a shift
};

constexpr int64_t kDigits = 800;  // of which all but the first 768 only matter by not being zero

}  // namespace

// numerator / denominator, exactly, divided bit by bit.
uint64_t nearest_float_exact(const FloatForm& form, const uint8_t* text, size_t size) {
  Big numerator;
  int64_t exponent = 0, count = 0;
  bool behind_point = false, more = false;
  size_t at = 0;
  for (; at < size && (text[at] | 0x20) != 'e'; at++) {
    if (text[at] == '.') {
      behind_point = true;
      continue;
    }
    const uint64_t digit = text[at] - uint64_t{'0'};
    if (count == kDigits) {
      more |= digit != 0;
      exponent += !behind_point;
      continue;
    }
    exponent -= behind_point;
    count += count || digit;
    numerator.bits() ? numerator.times_plus(10, digit) : void(numerator = Big(digit));
  }
  if (!count) return 0;
  if (at < size) {
    const bool negative = ++at < size && text[at] == '-';
    at += negative || (at < size && text[at] == '+');
    int64_t value = 0;
    for (; at < size; at++)
      value = std::min<int64_t>(10 * value + (text[at] - '0'), INT64_MAX / 32);
    exponent += negative ? -value : value;
  }
  if (more) numerator.times_plus(10, 1), exponent--, count++;
  if (count + exponent > 310) return form.infinity;  // 10^309 and more
  if (count + exponent < -345) return 0;
  Big denominator(1);
  (exponent < 0 ? denominator : numerator).times_power_of_10(exponent < 0 ? -exponent : exponent);
  int two = numerator.bits() - denominator.bits();  // floor(log2) of the quotient, or one more
  (two < 0 ? numerator : denominator).shift_left(two < 0 ? -two : two);
  if (numerator.less(denominator)) numerator.shift_left(1), two--;
  const int biased = two + form.bias,
            keep = std::max(biased < 1 ? form.mantissa + biased : form.mantissa + 1, -1);
  uint64_t kept = 0;
  bool up = false;
  for (int i = 0; i <= keep; i++) {  // the last one is the bit behind those that are kept
    up = !numerator.less(denominator);
    if (up) numerator.minus(denominator);
    if (i < keep) kept = kept << 1 | up;
    numerator.shift_left(1);
  }
  kept += up && (numerator.bits() || (kept & 1));
  const uint64_t bits = (static_cast<uint64_t>(std::max(biased, 1) - 1) << form.mantissa) + kept;
  return bits > form.most ? form.infinity : bits;
}

}  // namespace tensorwire
