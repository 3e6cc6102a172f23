// Columns into tf.train.Example and SequenceExample messages, byte for byte what
// SerializeToString(deterministic=True) writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tensorwire {

// A column to be written; sizes are in elements, and everything is checked against them while
// writing.
struct Input {
  std::string name;
  int kind;        // FeatureKind
  bool list;       // a feature list of a SequenceExample
  int64_t length;  // values of every instance, or -1 and `splits` says
  const uint8_t* values;
  size_t values_size;
  const int64_t* offsets;  // kBytesList only
  size_t offsets_size;
  const int64_t* splits;
  size_t splits_size;
  const int64_t* steps;  // lists only
  size_t steps_size;
  const uint8_t* present;  // or null: all are
  size_t present_size;
};

struct Encoded {
  int status = 0;     // kOk; kNoSpace: the next message does not fit; kOutOfRange: a column
                      // contradicts itself, or a message is past 2 GiB
  size_t done = 0;    // messages written
  size_t used = 0;    // bytes written
  size_t wanted = 0;  // with kNoSpace: the bytes that the next message takes
};

// Messages for rows first, first + step, ... (`count` of them) one after the other, each in a
// TFRecord frame if `framed`. Columns come in the order in which they are to stand. ends[i], if
// wanted, is where message i ends.
Encoded encode_examples(const std::vector<Input>& columns, bool sequence, size_t first, size_t step,
                        size_t count, bool framed, uint8_t* out, size_t room, int64_t* ends);

}  // namespace tensorwire
