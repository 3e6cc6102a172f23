// TensorProto's typed value fields (float_val, int_val, ...) into an array of the tensor's own
// type.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

struct TypedOutcome {
  int status;
  size_t offset;
  size_t count;  // values stored
};

// Reads up to `room` values of `field` from a message that scan_tensor has accepted. Numbers of
// `width` bytes go to `out`. In strict mode a value outside [lowest, highest] is kOutOfRange;
// otherwise it wraps, as TensorFlow's does. Bounds are ignored for floats.
TypedOutcome read_typed(const uint8_t* in, size_t size, unsigned field, bool strict, size_t width,
                        int64_t lowest, uint64_t highest, uint8_t* out, size_t room);

}  // namespace tensorwire
