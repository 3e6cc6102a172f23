// How each kind of float is made of bits.
#pragma once
#include <bit>
#include <cstdint>

#include "json_numbers.h"

namespace tensorwire {

struct FloatForm {
  int mantissa;  // bits
  int bias;
  uint64_t sign;      // its bit; 0 if there is none
  uint64_t most;      // the bits of the largest finite number, and all below are finite
  uint64_t infinity;  // 0 if there is none
  uint64_t nan;       // the usual one, which is positive; 0 if there is none
};

constexpr FloatForm kFloatForms[] = {
    {52, 1023, uint64_t{1} << 63, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000},
    {23, 127, 0x80000000, 0x7f7fffff, 0x7f800000, 0x7fc00000},
    {10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00},
    {7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fc0},
    {2, 15, 0x80, 0x7b, 0x7c, 0x7e},  // e5m2
    {3, 7, 0x80, 0x7e, 0, 0x7f},      // e4m3fn
    {3, 8, 0x80, 0x7f, 0, 0x80},      // e4m3fnuz: what would be -0 is the only NaN
    {3, 11, 0x80, 0x7f, 0, 0x80},     // e4m3b11fnuz
    {2, 16, 0x80, 0x7f, 0, 0x80},     // e5m2fnuz
    {0, 127, 0, 0xfe, 0, 0xff},       // e8m0fnu: powers of two alone, neither zero nor sign
    {3, 7, 0x80, 0x77, 0x78, 0x7c},   // e4m3
    {4, 3, 0x80, 0x6f, 0x70, 0x78},   // e3m4
    {3, 1, 0x20, 0x1f, 0, 0},         // e2m3fn
    {2, 3, 0x20, 0x1f, 0, 0},         // e3m2fn
    {1, 1, 0x8, 0x7, 0, 0},           // e2m1fn
};

constexpr bool is_float(JsonKind kind) { return kind <= kFloat4E2m1fn; }

// The bits of an element of one byte that mean anything.
constexpr uint8_t float_mask(JsonKind kind) {
  return kind == kFloat4E2m1fn ? 15 : kind == kFloat6E2m3fn || kind == kFloat6E3m2fn ? 63 : 255;
}

constexpr size_t float_width(JsonKind kind) {
  return kind == kFloat64 ? 8 : kind == kFloat32 ? 4 : kind <= kBfloat16 ? 2 : 1;
}

}  // namespace tensorwire
