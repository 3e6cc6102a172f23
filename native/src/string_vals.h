// Many byte strings as two buffers (their bytes, and n+1 offsets) to and from the two forms that
// TensorProto has for them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

struct Outcome {
  int status;
  size_t offset;  // of the fault in the input, or how far it was read
  size_t count;   // strings
  size_t used;    // bytes of the output
};

// string_val: `42 <length> <bytes>` for each string. Sizes are computed first, and checked again
// while writing, because another thread may change the offsets in between.
size_t string_vals_size(const int64_t* offsets, size_t n);
Outcome write_string_vals(uint8_t* out, size_t room, const uint8_t* data, size_t data_size,
                          const int64_t* offsets, size_t n);

// Reads the string_val fields from `start` to the end of a TensorProto, stepping over other fields
// (`only_strings` refuses them), into `data` (at most `room` bytes) and `offsets` (n + 1). Strings
// past n are counted and not stored.
Outcome read_string_vals(const uint8_t* in, size_t size, size_t start, bool only_strings, size_t n,
                         uint8_t* data, size_t room, int64_t* offsets);

// The same walk, noting where each string is instead of copying it.
Outcome find_string_vals(const uint8_t* in, size_t size, size_t start, bool only_strings, size_t n,
                         int64_t* starts, int64_t* sizes);

// tensor_content of a string tensor: all lengths as varints, then all bytes.
size_t string_lengths_size(const int64_t* offsets, size_t n);
Outcome write_string_lengths(uint8_t* out, size_t room, size_t data_size, const int64_t* offsets,
                             size_t n);
Outcome read_string_lengths(const uint8_t* in, size_t size, size_t n, int64_t* offsets);

}  // namespace tensorwire
