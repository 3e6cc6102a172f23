// Powers of ten to 128 bits, by which shortest digits are found and decimal numbers read. Made by
// the compiler from their definition.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorwire {

using uint128 = unsigned __int128;

constexpr int kLeastPower = -342;  // below: even 2^64 times it is nothing to a double
constexpr int kMostPower = 324;    // what the smallest double has to be multiplied with

// floor(log2(10^q)) and floor(log10(2^q)), for any exponent that a double or the table has; a test
// goes through all of them.
constexpr int log2_of_power10(int q) { return (q * 1741647) >> 19; }
constexpr int log10_of_power2(int q) { return (q * 1262611) >> 22; }

// 10^q = (hi * 2^64 + lo + something below 1) * 2^(log2_of_power10(q) - 127); the top bit of hi is
// set.
struct Power {
  uint64_t hi, lo;
};

namespace powers {

// Little-endian limbs. 5^324 has 753 bits; 2^1023 / 5^342 has 229.
template <size_t kLimbs>
struct Big {
  std::array<uint64_t, kLimbs> limbs{};

  constexpr void times_5() {
    uint64_t carry = 0;
    for (uint64_t& limb : limbs) {
      const uint128 product = uint128{limb} * 5 + carry;
      limb = static_cast<uint64_t>(product);
      carry = static_cast<uint64_t>(product >> 64);
    }
  }

  constexpr void over_5() {  // floor after floor is the floor of the whole
    uint64_t rest = 0;
    for (size_t i = kLimbs; i-- > 0;) {
      const uint128 value = (uint128{rest} << 64) + limbs[i];
      limbs[i] = static_cast<uint64_t>(value / 5);
      rest = static_cast<uint64_t>(value % 5);
    }
  }

  constexpr uint64_t limb(ptrdiff_t i) const { return i < 0 ? 0 : limbs[static_cast<size_t>(i)]; }

  constexpr Power top() const {
    ptrdiff_t high = kLimbs - 1;
    while (!limb(high)) high--;
    unsigned shift = 0;
    while (!(limb(high) << shift >> 63)) shift++;
    const uint64_t a = limb(high), b = limb(high - 1), c = limb(high - 2);
    return shift ? Power{a << shift | b >> (64 - shift), b << shift | c >> (64 - shift)}
                 : Power{a, b};
  }
};

constexpr auto make() {
  std::array<Power, kMostPower - kLeastPower + 1> table{};
  Big<12> large{{1}};
  for (int q = 0; q <= kMostPower; q++, large.times_5())
    table[static_cast<size_t>(q - kLeastPower)] = large.top();
  Big<16> small{};
  small.limbs[15] = uint64_t{1} << 63;
  for (int q = -1; q >= kLeastPower; q--) {
    small.over_5();
    table[static_cast<size_t>(q - kLeastPower)] = small.top();
  }
  return table;
}

inline constexpr auto kTable = make();

}  // namespace powers

inline const Power& power_of_10(int q) {
  return powers::kTable[static_cast<size_t>(q - kLeastPower)];
}

}  // namespace tensorwire
