// TensorFlow's TensorProto: finding what a message holds, and writing the header of a dense one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

constexpr int kMaxRank = 254;  // TensorFlow's own
constexpr int kFields = 19;    // TensorProto's field numbers are below this

struct TensorScan {
  int status = 0;
  size_t offset = 0;  // of the fault; else where the scan stopped
  int64_t dtype = 0;
  int rank = 0;
  bool has_shape = false;
  bool unknown_rank = false;
  int64_t dims[kMaxRank];
  size_t name_offset = 0;  // of the first dimension's name; how our own containers are told from
                           // plain string vectors
  size_t name_size = 0;
  bool has_content = false;
  size_t content_offset = 0;
  size_t content_size = 0;
  size_t counts[kFields] = {};  // values in each typed field
};

// Reads the whole message. `strict` refuses what protobuf would skip or merge. With
// `stop_at_strings` it returns at the first string_val, because the kernel that copies the strings
// checks the rest in the same pass.
void scan_tensor(const uint8_t* data, size_t size, bool strict, bool stop_at_strings,
                 TensorScan& out);

// The one form that TensorFlow writes for numbers: dtype, shape, content, nothing else. False for
// anything else, which is then for scan_tensor to judge. `dims` has room for kMaxRank.
struct DenseView {
  int64_t dtype;
  int rank;
  int64_t dims[kMaxRank];
  uint64_t bound;  // product of the dims that are not zero: NumPy refuses shapes whose bound does
                   // not fit, empty or not
  size_t content_offset;
  size_t content_size;
};
bool match_dense(const uint8_t* data, size_t size, DenseView& out);

// Bytes before the content of a dense tensor. With a negative `content_size` there is no content
// field. Room needed: dense_header_size.
size_t dense_header_size(int64_t dtype, const int64_t* dims, int rank, int64_t content_size);
uint8_t* write_dense_header(uint8_t* p, int64_t dtype, const int64_t* dims, int rank,
                            int64_t content_size);

}  // namespace tensorwire
