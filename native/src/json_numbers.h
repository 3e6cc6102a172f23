// JSON numbers straight between text and typed buffers. Lists nest by a shape, or by row_splits;
// nothing here knows Python.
//
// Floats are written with the fewest digits that are read back as the same number of their own
// type, laid out as Python's repr does (1.0, 1e-05, 1e+16). Reading rounds once, to the nearest,
// ties to even; types of 16 bits and fewer go through float64, as they do in any other language.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorwire {

// In the order of KINDS in wire/reference/json_numbers.py.
enum JsonKind : int {
  kFloat64,
  kFloat32,
  kFloat16,
  kBfloat16,
  kFloat8E5m2,
  kFloat8E4m3fn,
  kFloat8E4m3fnuz,
  kFloat8E4m3b11fnuz,
  kFloat8E5m2fnuz,
  kFloat8E8m0fnu,
  kFloat8E4m3,
  kFloat8E3m4,
  kFloat6E2m3fn,
  kFloat6E3m2fn,
  kFloat4E2m1fn,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kInt4,
  kInt2,
  kUint64,
  kUint32,
  kUint16,
  kUint8,
  kUint4,
  kUint2,
  kBool,
  kJsonKinds
};

size_t json_width(JsonKind kind);  // bytes of an element

// One depth of nested lists: all of `length`, or list i holds the things from number splits[i] to
// number splits[i + 1] of the next depth.
struct JsonLevel {
  const int64_t* splits;
  size_t size;  // of splits
  size_t length;
};

struct JsonLayout {
  std::vector<JsonLevel> levels;
  bool bare = false;  // NaN, Infinity as tokens that JSON does not have, rather than as strings
  int indent = -1;  // below 0: no spaces at all. Else lists of lists take a line an item, indented
                    // by so much more, and `, ` parts numbers
  size_t margin = 0;  // how far the line is indented in which the outermost list begins
};

// Bytes that are enough for any values, and that the writer may use on the way; SIZE_MAX if that is
// more than any memory, or if the levels do not fit `count` values. Splits may change afterwards:
// whatever they say then, writing stays inside.
size_t json_room(JsonKind kind, size_t count, const JsonLayout& layout);

struct JsonWritten {
  int status;  // kOk; kOutOfRange if splits contradict themselves
  size_t size;
};
JsonWritten write_json(JsonKind kind, const void* values, size_t count, const JsonLayout& layout,
                       uint8_t* out, size_t room);

constexpr int kMaxJsonRank = 64;  // NumPy's

struct JsonOutcome {
  int status;
  size_t offset;  // of the fault
  size_t end;     // where the value ends
};

// A value that has exactly these dims, into room for all its elements.
JsonOutcome read_json_shape(const uint8_t* text, size_t size, size_t at, JsonKind kind,
                            const size_t* dims, int rank, void* out);

// A value of any shape and at most `most` elements. Whoever calls frees `values`, which may be
// null. With `ragged`, lists need not be equally long.
struct JsonArray {
  uint8_t* values = nullptr;
  size_t count = 0, room = 0;  // elements, and what there is memory for
  int rank = 0;
  size_t dims[kMaxJsonRank] = {};             // not ragged
  std::vector<int64_t> splits[kMaxJsonRank];  // ragged: splits[i], from 1 to rank - 1, says which
                                              // elements each list of depth i has
};
JsonOutcome read_json_any(const uint8_t* text, size_t size, size_t at, JsonKind kind, bool ragged,
                          size_t most, JsonArray& out);

struct JsonSkipped {
  int status;
  size_t offset;  // of the fault; else where the value ends, or where the string with the dollar
                  // begins
  int depth;      // of the lists and objects in it
  bool dollar;    // a string in it begins with "$": what comes after it was not looked at
};

// To the end of the list or object that begins here, by its brackets and strings alone: whatever
// else may be wrong with it is not seen. Stops at a string that begins with "$", unless told to go
// past them.
JsonSkipped skip_json(const uint8_t* text, size_t size, size_t at, int most_depth,
                      bool past_dollars);

}  // namespace tensorwire
