// A packed run of varints into int64, quickly.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// How many numbers were stored; -1 if there are more than `room`, one is longer than eight bytes,
// the run does not end with the end of a number, or `limit`, up to where memory may be read, is
// nearer than 72 bytes. Then nobody knows what was stored, and the long way must be taken.
ptrdiff_t packed_varints(const uint8_t* at, const uint8_t* end, const uint8_t* limit, int64_t* to,
                         size_t room);

}  // namespace tensorwire
