#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// The rule of protobuf's `string` fields, and of Python: well-formed UTF-8, no surrogates, nothing
// past U+10FFFF.
inline bool is_utf8(const uint8_t* p, size_t size) {
  const uint8_t* end = p + size;
  while (p < end) {
    const uint8_t c = *p++;
    if (c < 0x80) continue;
    const int more = (c >= 0xc2 && c <= 0xdf)   ? 1
                     : (c & 0xf0) == 0xe0       ? 2
                     : (c >= 0xf0 && c <= 0xf4) ? 3
                                                : -1;
    if (more < 0 || end - p < more) return false;
    for (int i = 0; i < more; i++)
      if ((p[i] & 0xc0) != 0x80) return false;
    if ((c == 0xe0 && p[0] < 0xa0) || (c == 0xed && p[0] > 0x9f) || (c == 0xf0 && p[0] < 0x90) ||
        (c == 0xf4 && p[0] > 0x8f))
      return false;
    p += more;
  }
  return true;
}

}  // namespace tensorwire
